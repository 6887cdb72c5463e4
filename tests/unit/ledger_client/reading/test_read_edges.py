"""How readers and recoveries handle odd answers: misplaced, overlong, refused, moved."""

import asyncio

import pytest

from bookie.wire.batch import BatchView, build_batch
from bookie.wire.codec import Entries
from bookie.wire.messages import Status
from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.errors import QuorumTimeoutError, RecoveryUndecidedError
from ledger_client.reading.reader import LedgerReader
from ledger_client.reading.verified_entries import verify_entries
from metadata.ids import NO_ENTRY, BookieId, EntryId
from metadata.ledgers.ledger_metadata import DigestType, Fragment
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world
from tests.unit.ledger_client.reading.test_reader import (
    DIGESTS,
    TOKEN,
    check,
    close,
    confirm,
    fill,
    open_reader,
    run,
)


def batch(world: World, first: int, count: int) -> BatchView:
    keys = world.keys
    entries = payloads(first, count)
    return BatchView(
        build_batch(
            keys.ledger_id, EntryId(first), EntryId(NO_ENTRY), length(first), entries, keys.seed
        )
    )


@pytest.mark.parametrize(
    ("batches", "good", "following"),
    [
        ([(5, 5), (10, 5)], 2, 15),
        ([(5, 5), (11, 4)], 1, 10),  # a gap
        ([(5, 5), (9, 6)], 1, 10),  # an overlap
        ([(6, 4)], 0, 5),  # begins too late
        ([(2, 3)], 0, 5),  # ends before the requested entries
        ([(2, 8)], 1, 10),  # begins earlier, and contains it
        ([(10, 5), (5, 5)], 0, 5),  # out of order
    ],
)
def test_batches_count_up_to_the_first_that_is_out_of_place(
    batches: list[tuple[int, int]], good: int, following: int
) -> None:
    async def scenario(world: World) -> None:
        answer = Entries(
            Status.OK,
            EntryId(20),
            EntryId(15),
            tuple(batch(world, first, count) for first, count in batches),
        )
        verified = verify_entries(answer, world.keys, EntryId(5), EntryId(14))
        assert (len(verified.batches), verified.next_entry_id) == (good, following)
        assert (verified.status is Status.OK) is (good == len(batches))

    run_world(scenario)


def test_a_status_for_another_entry_is_ignored() -> None:
    async def scenario(world: World) -> None:
        held = (batch(world, 5, 5),)
        answer = Entries(Status.NO_SUCH_ENTRY, EntryId(20), EntryId(12), held)
        verified = verify_entries(answer, world.keys, EntryId(5), EntryId(14))
        assert (verified.next_entry_id, verified.status) == (10, Status.UNKNOWN)
        nothing = Entries(Status.OK, EntryId(20), EntryId(5), ())
        verified = verify_entries(nothing, world.keys, EntryId(5), EntryId(14))
        assert verified.status is Status.UNKNOWN

    run_world(scenario)


@DIGESTS
def test_a_tail_stops_at_a_lac_within_a_batch(digest: DigestType) -> None:
    """Batches of keyed ledgers come complete; entries beyond the LAC are not shown (8.1)."""

    async def scenario(world: World, reader: LedgerReader) -> None:
        tail = reader.tail(20)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.1)
        world.bookies.write(20, payloads(20, 5), lac=19, length_before=length(20), to="a,b,c")
        confirm(world, 22)
        check([await waiting], 20, 22)
        check([part async for part in reader.read(18, 21)], 18, 21)
        await tail.aclose()

    run(scenario, digest=digest, entries=20)


def test_a_tail_leaves_a_dead_bookie_at_once() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        for dead in "abc":
            world.bookies[dead].failure = CallFailure.REFUSED
            tail = reader.tail(reader.last_confirmed + 1)
            waiting = asyncio.ensure_future(anext(tail))
            await asyncio.sleep(0.2)
            start = reader.last_confirmed + 1
            others = ",".join(b for b in "abc" if b != dead)
            size = payloads(start, 5)
            world.bookies.write(start, size, lac=start - 1, length_before=length(start), to=others)
            confirm(world, start + 4)
            began = asyncio.get_running_loop().time()
            check([await waiting], start, start + 4)
            assert asyncio.get_running_loop().time() - began < 0.1
            await tail.aclose()
            world.bookies[dead].failure = None

    run(scenario, entries=20)


def test_a_tail_moves_with_the_ensemble_at_once() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        tail = reader.tail(20)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.6)
        metadata, version = await world.ledgers.get(LEDGER)
        ensemble = (BookieId("d"), BookieId("e"), BookieId("f"))
        changed = metadata.with_ensemble_change(EntryId(20), ensemble, TOKEN)
        await world.ledgers.compare_and_set(changed, version)
        world.metadata = changed
        await asyncio.sleep(0.1)
        fill(world, 25, 20)
        began = asyncio.get_running_loop().time()
        check([await waiting], 20, 24)
        assert asyncio.get_running_loop().time() - began < 0.1
        await tail.aclose()

    run(scenario, entries=20)


def test_a_read_ends_within_its_timeout() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        loop = asyncio.get_running_loop()
        for name in "abc":
            world.bookies[name].failure = CallFailure.TIMEOUT
        began = loop.time()
        with pytest.raises(QuorumTimeoutError):
            await reader.read_entry(3, timeout=0.2)
        assert loop.time() - began < 0.3

    run(scenario, entries=10)


def test_a_read_follows_a_repair() -> None:
    """The replicas of a closed ledger moved, and there is no watch: the read fetches the metadata
    again (8.2).
    """

    async def main(world: World) -> None:
        fill(world, 20)
        await close(world, 19)
        async with await open_reader(world) as reader:
            for old, new in zip("abc", "def", strict=True):
                world.bookies[new].entries.update(world.bookies[old].entries)
                world.bookies[old].entries.clear()
            metadata, version = await world.ledgers.get(LEDGER)
            ensemble = (BookieId("d"), BookieId("e"), BookieId("f"))
            moved = metadata.with_fragment(0, Fragment(EntryId(0), ensemble), TOKEN)
            await world.ledgers.compare_and_set(moved, version)
            check([part async for part in reader.read(0, 19)], 0, 19)

    run_world(main)


def test_a_refused_recovery_read_is_no_negative() -> None:
    """A bookie that refuses did not fence, so its negative answer does not count (7.3)."""

    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b")
        world.bookies["a"].failure = CallFailure.PROTOCOL
        for name in "bc":
            world.bookies[name].refuses_reads = Status.NO_SUCH_ENTRY
        with pytest.raises(RecoveryUndecidedError) as raised:
            await world.recover()
        assert sorted(raised.value.missing) == ["a", "b", "c"]

    run_world(scenario)


@pytest.mark.parametrize("silent", "abc")
def test_a_short_time_is_shared_among_the_replicas(silent: str) -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        loop = asyncio.get_running_loop()
        for name in "abc":
            world.bookies[name].delay_s = 4.0 if name == silent else 0.05
        began, time_s = loop.time(), ClientConfig().speculative_delay_max_s / 2
        check([batch async for batch in reader.read(3, 3, timeout=time_s)], 3, 3)
        assert loop.time() - began < time_s  # of the simulation

    run(scenario, entries=10)
