"""An ephemeral node that is kept: who holds it, what replaces it, and its end. In virtual time."""

import asyncio
import random

import pytest

from metadata.errors import (
    MetadataFormatError,
    NameHeldError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from metadata.ids import Version
from metadata.store.ephemeral import (
    INCARNATION_BYTES,
    EphemeralKeeper,
    HeldNode,
    pack_held,
    unpack_held,
)
from metadata.store.interface import MetadataStore, find
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import taken_s
from tests.until import until

PATH = "/names/one"
OURS, THEIRS = bytes(INCARNATION_BYTES), b"t" * INCARNATION_BYTES
FAILURES = 5
PAUSES_S = (0.7, 1.7)
"""Bounds of the time of FAILURES pauses of a new `Backoff`, half of each at random."""


def keeper(
    store: MetadataStore,
    content: bytes = b"content",
    incarnation: bytes = OURS,
    dead: tuple[bytes, ...] = (),
    lost: list[NameHeldError] | None = None,
) -> EphemeralKeeper:
    return EphemeralKeeper(
        store,
        PATH,
        content,
        random.Random(3),
        incarnation=incarnation,
        dead_incarnations=dead,
        on_lost=None if lost is None else lost.append,
    )


async def held(store: MetadataStore) -> HeldNode | None:
    stored = await find(store, PATH)
    return None if stored is None else unpack_held(PATH, stored.value)


async def version(store: MetadataStore) -> Version:
    return (await store.get(PATH, fresh=True)).version


@pytest.mark.parametrize(
    "value", [b"", b"17", b"\x94\x01\xa1x\x01\xc4\x00", b"\x94\x01\xc4\x00\xff\xc4\x00"]
)
def test_a_value_of_another_form_is_a_format_error(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        unpack_held(PATH, value)


def test_a_stored_form_is_read_as_it_was() -> None:
    for session_id in (0, 2**63 - 1):
        node = HeldNode(OURS, session_id, b"")
        assert unpack_held(PATH, pack_held(node)) == node


async def test_an_incarnation_is_drawn_unless_it_is_given(store: MemoryMetadataStore) -> None:
    rng = random.Random(3)
    drawn = [EphemeralKeeper(store, PATH, b"", rng).incarnation for _ in range(2)]
    assert [len(each) for each in drawn] == [INCARNATION_BYTES] * 2
    assert drawn[0] != drawn[1]


async def test_one_of_two_that_start_together_holds_the_node(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    await store.create("/names", b"")
    both = [keeper(store), keeper(other_store, incarnation=THEIRS)]
    starts = [ephemeral_keeper.start(held_wait_s=1.0) for ephemeral_keeper in both]
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["NameHeldError", "NoneType"]
    for ephemeral_keeper in both:
        await ephemeral_keeper.aclose()


async def test_the_end_of_a_keeper_that_was_not_started_removes_nothing(
    store: MemoryMetadataStore,
) -> None:
    kept = keeper(store)
    await kept.start()
    await keeper(store).aclose()
    assert await held(store) is not None
    await kept.aclose()


async def test_a_node_is_held_with_its_session_and_content(store: MemoryMetadataStore) -> None:
    kept = keeper(store)
    await kept.start()
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    assert (await store.get(PATH)).ephemeral
    await kept.aclose()
    assert await held(store) is None


async def test_a_holder_that_stays_is_waited_for_and_then_refuses(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    theirs = keeper(other_store, incarnation=THEIRS)
    await theirs.start()
    kept = keeper(store)

    async def fail() -> None:
        with pytest.raises(NameHeldError):
            await kept.start(held_wait_s=10.0)

    assert 10.0 <= await taken_s(fail()) < 11.0
    assert await taken_s(_refused(store)) < 0.1, "without a wait it is refused at once"
    await kept.aclose()  # it was not started
    assert await held(store) == HeldNode(THEIRS, other_store.session_id, b"content")
    await theirs.aclose()


async def _refused(store: MetadataStore) -> None:
    with pytest.raises(NameHeldError):
        await keeper(store).start(held_wait_s=0.0)


async def test_a_holder_that_ends_is_followed(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    theirs = keeper(other_store, incarnation=THEIRS)
    await theirs.start()
    kept = keeper(store)
    starting = asyncio.get_running_loop().create_task(kept.start())
    await asyncio.sleep(1)
    await theirs.aclose()
    await asyncio.wait_for(starting, 1.0)
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_a_dead_incarnation_is_replaced_at_once(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    await keeper(other_store, incarnation=THEIRS).start()
    kept = keeper(store, dead=(THEIRS,))
    assert await taken_s(kept.start()) < 1.0
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_an_unknown_outcome_at_the_start_is_tried_again_with_pauses(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create("/names", b"")
    faults.acts = ["dropped"] * FAILURES
    kept = keeper(store)
    assert PAUSES_S[0] < await taken_s(kept.start()) < PAUSES_S[1]
    assert await held(store) is not None
    await kept.aclose()


async def test_an_unknown_outcome_is_tried_until_the_deadline(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create("/names", b"")
    faults.acts = ["dropped"] * 1_000
    kept = keeper(store)

    async def fail() -> None:
        with pytest.raises(OutcomeUnknownError):
            await kept.start(held_wait_s=10.0)

    assert 10.0 <= await taken_s(fail()) < 12.0
    faults.acts = ["dropped"]
    with pytest.raises(OutcomeUnknownError):
        await keeper(store).start(held_wait_s=0.0)


async def test_a_service_that_does_not_answer_raises(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create("/names", b"")
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await keeper(store).start()


async def test_a_content_is_written_when_it_changes(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    faults.writes.clear()
    kept.set_content(b"content")
    await asyncio.sleep(1)
    assert faults.writes == []
    kept.set_content(b"other")
    await asyncio.sleep(1)
    assert await held(store) == HeldNode(OURS, store.session_id, b"other")
    assert faults.writes == ["compare_and_set"]
    await kept.aclose()


async def test_a_node_that_somebody_removes_is_created_again(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    kept = keeper(store)
    await kept.start()
    await other_store.delete(PATH, await version(other_store))
    await asyncio.sleep(1)
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


@pytest.mark.parametrize("is_told", [False, True])
async def test_another_holder_ends_the_keeping(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, is_told: bool
) -> None:
    lost: list[NameHeldError] = []
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(what))
    kept = keeper(store, lost=lost if is_told else None)
    before = asyncio.all_tasks()
    await kept.start()
    await other_store.delete(PATH, await version(other_store))
    theirs = pack_held(HeldNode(THEIRS, other_store.session_id, b"theirs"))
    await other_store.create(PATH, theirs, ephemeral=True)
    await asyncio.sleep(1)
    assert len(lost) == is_told
    assert not asyncio.all_tasks() - before
    assert not reports
    await kept.aclose()
    assert (await store.get(PATH, fresh=True)).value == theirs, "the end removes only what is ours"


async def test_a_node_that_is_not_wanted_is_removed_until_it_is_wanted(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    kept.want(held=False)
    await asyncio.sleep(1)
    assert await held(store) is None
    faults.writes.clear()
    kept.want(held=False)
    await asyncio.sleep(1)
    assert faults.writes == []
    theirs = pack_held(HeldNode(THEIRS, other_store.session_id, b"theirs"))
    await other_store.create(PATH, theirs, ephemeral=True)
    await asyncio.sleep(1)
    assert (await other_store.get(PATH)).value == theirs, "another process may have it meanwhile"
    await other_store.delete(PATH, Version(0))
    kept.want(held=True)
    await asyncio.sleep(1)
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_failures_are_tried_again_after_growing_pauses(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    times = []
    for content in (b"1", b"2", b"3"):
        faults.acts = ["dropped"] * FAILURES
        kept.set_content(content)

        async def is_written(content: bytes = content) -> None:
            while (found := await held(store)) is None or found.content != content:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        times.append(await taken_s(is_written()))
    assert PAUSES_S[0] < min(times), "it pauses"
    assert max(times) < PAUSES_S[1], "the pauses begin small again after a success"
    await kept.aclose()


async def test_a_conflict_is_tried_again_at_once(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    faults.acts = ["late"]
    faults.news_s = 60.0
    kept.set_content(b"other")
    await asyncio.sleep(faults.late_s / 2)
    value = pack_held(HeldNode(OURS, store.session_id, b"an earlier one"))
    faults.acts = []
    await other_store.compare_and_set(PATH, value, Version(0))
    await asyncio.sleep(faults.late_s / 2 + 0.01)
    found = await held(store)
    assert found is not None
    assert found.content == b"other"
    await kept.aclose()


async def test_a_closed_store_ends_the_keeping(store: MemoryMetadataStore) -> None:
    kept = keeper(store)
    before = asyncio.all_tasks()
    await kept.start()
    await store.aclose()
    kept.set_content(b"other")
    await asyncio.sleep(60)
    assert not asyncio.all_tasks() - before
    await kept.aclose()


async def test_nothing_is_kept_after_the_end(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    kept = keeper(store)
    before = asyncio.all_tasks()
    await kept.start()
    await kept.aclose()
    assert not store._watches
    kept.set_content(b"other")
    store.expire()
    await asyncio.sleep(1)
    assert await held(other_store) is None
    assert not asyncio.all_tasks() - before
    with pytest.raises(NodeNotFoundError):
        await other_store.get(PATH)


@pytest.mark.usefixtures("stale_reads")
async def test_the_end_removes_a_node_that_a_lagging_server_does_not_show(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    faults.news_s = 60.0
    value = pack_held(HeldNode(OURS, store.session_id, b"written elsewhere"))
    await other_store.compare_and_set(PATH, value, await version(other_store))
    await kept.aclose()
    assert await find(other_store, PATH, fresh=True) is None


async def test_a_service_that_is_away_does_not_delay_the_end(store: MemoryMetadataStore) -> None:
    kept = keeper(store)
    await kept.start()
    store.suspend()
    assert await taken_s(kept.aclose()) < 6.0
    store.resume()
    await until(lambda: store.session_state.value == "connected")
