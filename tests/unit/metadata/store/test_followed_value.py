"""Follower of one value: every last change is reported, whatever the callback does."""

import asyncio
from random import Random
from typing import Any

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.store.followed_value import FollowedValue
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.until import until

PATH = "/value"


async def test_a_value_is_followed_through_sessions(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: Random
) -> None:
    seen: list[bytes | None] = []
    followed = FollowedValue(other_store, PATH, rng, on_value=seen.append)
    await followed.start()
    assert seen == [None]
    version = await store.create(PATH, b"1")
    await until(lambda: seen[-1] == b"1")
    other_store.suspend()
    version = await store.compare_and_set(PATH, b"2", version)
    await asyncio.sleep(1)
    assert seen[-1] == b"1", "the store does not answer"
    other_store.resume()
    await until(lambda: seen[-1] == b"2")
    other_store.expire()
    version = await store.compare_and_set(PATH, b"3", version)
    await until(lambda: seen[-1] == b"3")
    await store.delete(PATH, version)
    await until(lambda: seen[-1] is None)
    await followed.aclose()
    await store.create(PATH, b"4")
    await asyncio.sleep(1)
    assert seen[-1] is None


async def test_a_callback_that_raises_is_reported_and_the_value_is_followed_further(
    store: MemoryMetadataStore, rng: Random
) -> None:
    seen: list[bytes | None] = []
    reported: list[object] = []

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reported.append(context["exception"])

    def on_value(value: bytes | None) -> None:
        seen.append(value)
        if value == b"bad":
            raise LookupError(value)
        if value == b"unreadable":
            raise MetadataFormatError(PATH, "it is not what it should be")

    asyncio.get_running_loop().set_exception_handler(report)
    followed = FollowedValue(store, PATH, rng, on_value=on_value)
    await followed.start()
    version = await store.create(PATH, b"bad")
    for value in (b"unreadable", b"good"):
        await until(lambda: seen[-1] is not None)
        await asyncio.sleep(1)
        version = await store.compare_and_set(PATH, value, version)
    await until(lambda: seen[-1] == b"good")
    assert b"unreadable" in seen
    assert [type(each) for each in reported] == [LookupError]
    await followed.aclose()


async def test_the_first_read_must_succeed(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: Random
) -> None:
    faults.meets, faults.refusals = reads_of(store), 1
    followed = FollowedValue(store, PATH, rng, on_value=lambda _value: None)
    with pytest.raises(StoreUnavailableError):
        await followed.start()
    await followed.aclose()
