"""Readers against bookies in memory, in virtual time (protocol rules 8.1-8.5)."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from ledger_client.batches import EntryBatch
from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.errors import (
    DigestMismatchError,
    EntryNotFoundError,
    LedgerClosedError,
    LedgerNotFoundError,
    QuorumTimeoutError,
)
from ledger_client.reading.reader import LedgerReader
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.ledger_client.memory_bookies import rng
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world

TOKEN = UpdateToken(b"changed by tests")
DIGESTS = pytest.mark.parametrize("digest", list(DigestType))


def run(
    scenario: Callable[[World, LedgerReader], Awaitable[None]],
    *,
    quorum: tuple[int, ...] = (3, 3, 2),
    digest: DigestType = DigestType.CRC32C,
    entries: int = 0,
) -> None:
    """Run a scenario with a reader of an open ledger that holds confirmed entries."""

    async def main(world: World) -> None:
        fill(world, entries)
        reader = await open_reader(world)
        async with reader:
            await scenario(world, reader)
        assert world.bookies.attached == 0

    ensemble = "a,b,c,d,e" if quorum[0] == 5 else "a,b,c"
    run_world(main, quorum=quorum, ensemble=ensemble, digest=digest)


async def open_reader(world: World) -> LedgerReader:
    metadata, version = await world.ledgers.get(LEDGER)
    reader = LedgerReader(
        metadata=metadata,
        version=version,
        keys=world.keys,
        pool=world.bookies.pool,
        ledgers=world.ledgers,
        config=ClientConfig(read_bytes_max=2000),
        rng=rng(),
    )
    await reader.start(ClientConfig().read_timeout_s)
    return reader


def fill(world: World, stop: int, start: int = 0, *, count: int = 7) -> None:
    """Write start..stop-1 to their write sets, confirmed."""
    quorum = world.metadata.quorum
    members = world.metadata.last_fragment.ensemble
    first = start
    while first < stop:
        stripe = first // quorum.stripe_entries
        size = min(count, stop - first, quorum.stripe_entries - first % quorum.stripe_entries)
        to = [members[(stripe + i) % len(members)] for i in range(quorum.write_quorum)]
        world.bookies.write(
            first,
            payloads(first, size),
            lac=first - 1,
            length_before=length(first),
            to=",".join(to),
        )
        first += size
    confirm(world, stop - 1)


def confirm(world: World, lac: int) -> None:
    for bookie_id in world.metadata.last_fragment.ensemble:
        world.bookies[bookie_id].advance(lac)


async def close(world: World, last: int) -> None:
    metadata, version = await world.ledgers.get(LEDGER)
    closed = metadata.with_closed(EntryId(last), length(last + 1), TOKEN)
    await world.ledgers.compare_and_set(closed, version)


def check(batches: list[EntryBatch], first: int, last: int) -> None:
    entries = [entry for batch in batches for entry in batch]
    assert [entry.id for entry in entries] == list(range(first, last + 1))
    assert [entry.data for entry in entries] == payloads(first, last - first + 1)


@DIGESTS
@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 3, 2, 16), (5, 3, 2, 16), (3, 2, 2, 1)])
def test_any_range_is_read_completely_and_in_order(
    quorum: tuple[int, ...], digest: DigestType
) -> None:
    async def scenario(_world: World, reader: LedgerReader) -> None:
        assert reader.last_confirmed == 199
        for first, last in [(0, 199), (5, 5), (3, 150), (16, 31), (199, 199), (7, 6)]:
            check([batch async for batch in reader.read(first, last)], first, last)
        assert (await reader.read_entry(77)).data == payloads(77, 1)[0]

    run(scenario, quorum=quorum, digest=digest, entries=200)


def test_reading_continues_when_bookies_die() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        batches = []
        async for batch in reader.read(0, 199):
            batches.append(batch)
            if batch.first_entry_id == 49:
                world.bookies["a"].failure = CallFailure.LOST
                world.bookies["b"].failure = CallFailure.TIMEOUT
        check(batches, 0, 199)

    run(scenario, entries=200)


def test_a_slow_replica_does_not_delay_a_read() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        loop = asyncio.get_running_loop()
        for slow in "abc":
            for name in "abc":
                world.bookies[name].delay_s = 4.0 if name == slow else 0.001
            began = loop.time()
            check([batch async for batch in reader.read(0, 9)], 0, 9)
            assert loop.time() - began <= 3 * ClientConfig().speculative_delay_max_s

    run(scenario, entries=10)


def test_a_damaged_replica_is_skipped() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        damage(world, "a", 3)
        damage(world, "b", 8)
        check([batch async for batch in reader.read(0, 19)], 0, 19)
        damage(world, "c", 3)
        damage(world, "b", 3)
        with pytest.raises(DigestMismatchError):
            await reader.read_entry(6)

    run(scenario, entries=20)


def damage(world: World, name: str, entry_id: int) -> None:
    """Flip a bit in the last entry of the batch that holds an entry, on one bookie."""
    bookie = world.bookies[name]
    batch = bookie.entries[entry_id][0]
    flipped = bytearray(batch.data)
    flipped[-1] ^= 1
    broken = type(batch)(flipped)
    for each, (held, digest) in list(bookie.entries.items()):
        if held is batch:
            bookie.entries[each] = broken, digest


def test_missing_only_when_all_say_so() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        confirm(world, 25)
        with pytest.raises(EntryNotFoundError):
            await reader.read_entry(22)
        world.bookies["b"].failure = CallFailure.REFUSED
        with pytest.raises(QuorumTimeoutError) as raised:
            await reader.read_entry(22, timeout=3)
        assert raised.value.retriable
        world.bookies["b"].failure = None
        world.bookies["b"].is_limbo = True
        with pytest.raises(QuorumTimeoutError):
            await reader.read_entry(22, timeout=3)

    run(scenario, entries=20)


def test_entries_beyond_the_lac_are_read_only_on_request() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        world.bookies.write(20, payloads(20, 5), lac=19, length_before=length(20), to="a,b,c")
        with pytest.raises(EntryNotFoundError):
            await reader.read_entry(22)
        with pytest.raises(EntryNotFoundError):
            await reader.read_entry(-1)
        check([batch async for batch in reader.read_unconfirmed(15, 24)], 15, 24)
        assert reader.last_confirmed == 19

    run(scenario, entries=20)


def test_a_read_waits_for_an_entry_just_acknowledged() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        world.bookies.write(20, payloads(20, 5), lac=19, length_before=length(20), to="a,b,c")
        asyncio.get_running_loop().call_later(0.05, confirm, world, 24)
        assert (await reader.read_entry(24)).data == payloads(24, 1)[0]

    run(scenario, entries=20)


def test_the_lac_never_goes_back() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        world.bookies["a"].advance(30)
        world.bookies["b"].failure = CallFailure.LOST
        assert await reader.refresh_last_confirmed() in (19, 30)
        seen = await reader.refresh_last_confirmed()
        world.bookies["a"].failure = CallFailure.LOST
        assert await reader.refresh_last_confirmed() == seen
        world.bookies["c"].failure = CallFailure.LOST
        with pytest.raises(QuorumTimeoutError):
            await reader.refresh_last_confirmed()
        assert reader.last_confirmed == seen

    run(scenario, entries=20)


@DIGESTS
@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 3, 3), (5, 3, 2, 16)])
def test_a_tail_follows_until_the_ledger_is_closed(
    quorum: tuple[int, ...], digest: DigestType
) -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        async def write() -> None:
            for start in range(20, 100, 5):
                await asyncio.sleep(0.03)
                fill(world, start + 5, start)
            await asyncio.sleep(3)
            fill(world, 110, 100)
            await close(world, 109)

        writing = asyncio.create_task(write())
        check([batch async for batch in reader.tail(3)], 3, 109)
        await writing
        assert reader.is_closed
        assert reader.info.last_entry_id == 109

    run(scenario, quorum=quorum, digest=digest, entries=20)


def test_a_tail_moves_over_bookies_and_fragments() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        async def write() -> None:
            await asyncio.sleep(0.5)
            world.bookies["a"].failure = CallFailure.TIMEOUT
            world.bookies["b"].failure = CallFailure.LOST
            metadata, version = await world.ledgers.get(LEDGER)
            ensemble = (BookieId("d"), BookieId("e"), BookieId("c"))
            changed = metadata.with_ensemble_change(EntryId(20), ensemble, TOKEN)
            await world.ledgers.compare_and_set(changed, version)
            world.metadata = changed
            fill(world, 40, 20)
            await asyncio.sleep(1)
            world.bookies["c"].failure = CallFailure.LOST
            fill_to = {"d", "e"}
            world.bookies.write(
                40,
                payloads(40, 5),
                lac=39,
                length_before=length(40),
                to=",".join(sorted(fill_to)),
            )
            confirm(world, 44)
            await close(world, 44)

        writing = asyncio.create_task(write())
        check([batch async for batch in reader.tail(10)], 10, 44)
        await writing

    run(scenario, entries=20)


def test_a_tail_survives_a_suspended_metadata_service() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        async def write() -> None:
            world.store.suspend()
            await asyncio.sleep(1)
            fill(world, 30, 20)
            await asyncio.sleep(1)
            world.store.resume()
            await close(world, 29)

        writing = asyncio.create_task(write())
        check([batch async for batch in reader.tail()], 0, 29)
        await writing

    run(scenario, entries=20)


def test_one_polled_bookie_that_hangs_delays_a_tail_for_a_bounded_time() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        loop = asyncio.get_running_loop()
        tail = reader.tail(20)
        next_batch = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.1)
        polled = [b for b, bookie in world.bookies.bookies.items() if bookie.polls]
        assert len(polled) == 1
        world.bookies[polled[0]].failure = CallFailure.TIMEOUT
        others = ",".join(b for b in "abc" if b != polled[0])
        world.bookies.write(20, payloads(20, 5), lac=19, length_before=length(20), to=others)
        for name in others.split(","):
            world.bookies[name].advance(24)
        began = loop.time()
        check([await next_batch], 20, 24)
        assert loop.time() - began < 3
        await tail.aclose()

    run(scenario, entries=20, quorum=(3, 3, 2))


def test_a_tail_from_beyond_the_end_of_a_closed_ledger_is_an_error() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        behind = asyncio.ensure_future(anext(reader.tail(22)))
        await asyncio.sleep(0.1)
        await close(world, 19)
        with pytest.raises(EntryNotFoundError, match="ends at entry 19, before the position 22"):
            await behind
        assert [batch async for batch in reader.tail(20)] == []

    run(scenario, entries=20)


def test_an_idle_tail_does_not_spin() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        tail = reader.tail(20)
        waiting = asyncio.ensure_future(anext(tail))
        world.bookies["a"].failure = CallFailure.REFUSED
        await asyncio.sleep(60)
        polls = sum(len(bookie.polls) for bookie in world.bookies.bookies.values())
        assert polls < 200
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(scenario, entries=20)


def test_a_deleted_ledger_ends_its_readers() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        async def delete() -> None:
            await asyncio.sleep(1)
            await world.ledgers.delete(LEDGER)

        deleting = asyncio.create_task(delete())
        with pytest.raises(LedgerNotFoundError):
            async for _batch in reader.tail():
                pass
        await deleting
        with pytest.raises(LedgerNotFoundError):
            await reader.read_entry(0)
        with pytest.raises(LedgerNotFoundError):
            await reader.refresh_last_confirmed()

    run(scenario, entries=20)


def test_closing_the_reader_ends_its_iterators() -> None:
    async def scenario(world: World, reader: LedgerReader) -> None:
        tail = reader.tail(20)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.1)
        await reader.aclose()
        with pytest.raises(LedgerClosedError):
            await waiting
        with pytest.raises(LedgerClosedError):
            await reader.read_entry(0)
        await reader.aclose()
        assert world.bookies.attached == 0

    run(scenario, entries=20)


def test_batches_support_index_iteration_and_buffers() -> None:
    async def scenario(_world: World, reader: LedgerReader) -> None:
        batches = [batch async for batch in reader.read(3, 12)]
        for batch in batches:
            expected = payloads(batch.first_entry_id, len(batch))
            assert [entry.data for entry in batch] == expected
            assert [batch[index].data for index in range(-len(batch), 0)] == expected
            payload, offsets = batch.buffers()
            assert [bytes(payload[a:b]) for a, b in pairwise(offsets)] == expected
            assert batch.payload_bytes == len(payload) == offsets[-1]
            with pytest.raises(IndexError):
                batch[len(batch)]

    run(scenario, entries=20)


def test_a_reader_without_bookies_knows_the_lac_that_the_metadata_proves() -> None:
    async def main(world: World) -> None:
        fill(world, 20)
        metadata = world.metadata.with_ensemble_change(
            EntryId(10), (BookieId("a"), BookieId("b"), BookieId("d")), TOKEN
        )
        world.version = await world.ledgers.compare_and_set(metadata, world.version)
        for name in "abd":
            world.bookies[name].failure = CallFailure.REFUSED
        async with await open_reader(world) as reader:
            assert reader.last_confirmed == 9
            check([batch async for batch in reader.read(0, 9)], 0, 9)

    run_world(main)
