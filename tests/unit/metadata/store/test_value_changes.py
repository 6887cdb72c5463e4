"""A change of a value is computed from what it replaces, and repeated until it is certain."""

import asyncio
import random

import pytest

from metadata.errors import MetadataError, StoreUnavailableError
from metadata.store import value_changes
from metadata.store.memory import MemoryMetadataStore
from metadata.store.value_changes import change_value
from tests.support.metadata.scripted_faults import ScriptedFaults

PATH = "/value"


def with_letter(letter: bytes, value: bytes | None) -> bytes:
    """Return the value with a letter, once."""
    before = value or b""
    return before if letter in before else before + letter


@pytest.mark.parametrize("act", ["", "lost", "dropped", "late"])
async def test_all_changes_are_kept(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
    act: str,
) -> None:
    faults.acts = [act] * 4
    letters = [b"a", b"b", b"c", b"d"]
    await asyncio.gather(
        *[
            change_value(
                (store, other_store)[i % 2],
                PATH,
                lambda value, letter=letter: with_letter(letter, value),  # type: ignore[misc]
                rng,
            )
            for i, letter in enumerate(letters)
        ]
    )
    assert sorted((await store.get(PATH)).value) == sorted(b"abcd")


async def test_nothing_is_written_without_a_change(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    assert await change_value(store, PATH, lambda value: value or b"a", rng) == b"a"
    assert await change_value(store, PATH, lambda value: value or b"b", rng) == b"a"
    assert faults.writes == ["create"]


async def test_an_unavailable_store_is_an_error_only_while_nothing_may_be_written(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await change_value(store, PATH, lambda _value: b"a", rng)
    faults.acts = ["dropped", "refused"]
    assert await change_value(store, PATH, lambda _value: b"a", rng) == b"a"


async def test_attempts_are_limited(
    store: MemoryMetadataStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_changes, "ATTEMPTS_MAX", 3)
    await store.create(PATH, b"0")
    seen: list[bytes | None] = []

    def change(value: bytes | None) -> bytes:
        seen.append(value)
        store_task.append(asyncio.ensure_future(interfere(len(seen))))
        return b"mine"

    async def interfere(number: int) -> None:
        stored = await store.get(PATH)
        await store.compare_and_set(PATH, b"%d" % number, stored.version)

    store_task: list[asyncio.Future[None]] = []
    real = store.compare_and_set

    async def after_the_other(path: str, value: bytes, expected: int) -> int:
        if value == b"mine":
            await asyncio.gather(*store_task)
        return await real(path, value, expected)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "compare_and_set", after_the_other)
    with pytest.raises(MetadataError, match="/value kept changing during 3 attempts: try again"):
        await change_value(store, PATH, change, rng)
    assert seen == [b"0", b"1", b"2"]
