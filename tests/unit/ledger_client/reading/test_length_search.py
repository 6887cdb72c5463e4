"""The search for a ledger's length: its result, and what it reads for it (rules 7.5 and 9.9)."""

from random import Random

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.errors import QuorumTimeoutError
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader, find_length_before
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType
from tests.support.ledger_client.ledger_world import length, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world

TOKEN = UpdateToken(b"changed by tests")
Batches = list[tuple[int, int]]
"""First entry and number of entries of each batch."""


class Ledger:
    """A ledger on a, b and c, with fragments on other bookies and lost entries if a test wants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = "abc"

    def write(self, batches: Batches) -> None:
        to = ",".join(self.names)
        for first, count in batches:
            texts, lac = payloads(first, count), first - 1
            self.world.bookies.write(first, texts, lac=lac, length_before=length(first), to=to)

    def continue_on(self, first: int, names: str) -> None:
        ensemble = tuple(BookieId(name) for name in names)
        changed = self.world.metadata.with_ensemble_change(EntryId(first), ensemble, TOKEN)
        self.world.metadata, self.names = changed, names

    def lose(self, lost: Batches, stop: int) -> None:
        closed = self.world.metadata.with_closed(EntryId(stop - 1), length(stop), TOKEN)
        found = [(EntryId(first), EntryId(first + count - 1)) for first, count in lost]
        self.world.metadata = closed.with_lost(found, 1_000, TOKEN)
        for first, count in lost:
            for bookie in self.world.bookies.bookies.values():
                for entry_id in range(first, first + count):
                    bookie.entries.pop(entry_id, None)

    async def search(self, entry_id: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the length, and the ranges that were read."""
        world = self.world
        for bookie in world.bookies.bookies.values():
            bookie.reads.clear()
        ledger = FollowedLedger(world.metadata, world.version, world.ledgers, Random(2))
        config = ClientConfig(speculative_delay_min_s=5.0, speculative_delay_max_s=5.0)
        ranges = RangeReader(ledger, world.keys, world.bookies.pool, config, Random(3))
        found = await find_length_before(ranges, EntryId(entry_id), 1.0)
        each = world.bookies.bookies.values()
        reads = [(read.first_entry_id, read.last_entry_id) for b in each for read in b.reads]
        return found, sorted(set(reads), reverse=True)


def run(
    batches: Batches,
    searches: dict[int, tuple[int, Batches | None]],
    *,
    digest: DigestType = DigestType.CRC32C,
    lost: Batches | None = None,
) -> None:
    """Check the length before each of some entries, and the first entry and end of each read."""

    async def main(world: World) -> None:
        ledger = Ledger(world)
        ledger.write(batches)
        if lost is not None:
            ledger.lose(lost, sum(batches[-1]))
        for entry_id, (wanted, reads) in searches.items():
            found, read = await ledger.search(entry_id)
            assert found == wanted, f"before entry {entry_id}"
            assert reads is None or read == reads, f"before entry {entry_id}"

    run_world(main, digest=digest)


@pytest.mark.parametrize("digest", list(DigestType))
def test_the_length_before_any_entry_is_the_sum_of_all_entries_before_it(
    digest: DigestType,
) -> None:
    batches = [(0, 3), (3, 1), (4, 50), (54, 2), (56, 1)]
    run(batches, {n: (length(n), None) for n in range(58)}, digest=digest)


def test_a_batch_of_one_entry_right_before_it_is_enough() -> None:
    run([(0, 200), (200, 1), (201, 1)], {201: (length(201), [(200, 200)])})


def test_the_search_goes_back_step_by_step() -> None:
    batches = [(0, 1_000), (1_000, 990), (1_990, 5), (1_995, 105)]
    reads = [(1_999, 1_999), (1_968, 1_999)]
    run(batches, {2_000: (length(2_000), reads)})


def test_before_the_first_entry_nothing_is_read() -> None:
    async def main(world: World) -> None:
        ledger = Ledger(world)
        ledger.write([(0, 5)])
        ledger.continue_on(5, "def")
        ledger.write([(5, 5)])
        assert await ledger.search(0) == (0, [])

    run_world(main)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_length_before_a_fragment_is_read_from_the_one_before_it(count: int) -> None:
    """The fragments around that one are not needed."""

    async def main(world: World) -> None:
        ledger = Ledger(world)
        ledger.write([(0, 9)])
        ledger.continue_on(9, "def")
        stop = 9 + count
        ledger.write([(9, count)])
        ledger.continue_on(stop, "abc")
        for name in "abc":
            world.bookies[name].failure = CallFailure.LOST
        found, reads = await ledger.search(stop)
        assert found == length(stop)
        assert min(first for first, _ in reads) >= 9

    run_world(main)


def test_an_earlier_fragment_is_read_if_a_later_one_has_no_complete_batch() -> None:
    async def main(world: World) -> None:
        ledger = Ledger(world)
        ledger.write([(0, 9)])
        ledger.continue_on(9, "def")
        ledger.write([(9, 40)])
        found, reads = await ledger.search(30)
        assert found == length(30)
        assert reads == [(29, 29), (9, 29), (0, 8)]
        for name in "abc":
            world.bookies[name].failure = CallFailure.LOST
        with pytest.raises(QuorumTimeoutError):
            await ledger.search(30)

    run_world(main)


# -- entries whose loss was accepted ---------------------------------------------------------------


def size(first: int, count: int) -> int:
    return length(first + count) - length(first)


def test_lost_entries_have_the_sizes_that_a_later_batch_implies() -> None:
    batches = [(0, 5), (5, 5), (10, 5)]
    for lost in ([(5, 2)], [(0, 10)], [(0, 1), (4, 3)]):
        run(batches, {15: (length(15), None)}, lost=lost)


def test_lost_entries_are_empty_if_no_later_batch_implies_their_sizes() -> None:
    batches = [(0, 5), (5, 5)]
    run(batches, {10: (length(5), None)}, lost=[(5, 5)])
    run(batches, {10: (length(5) + size(7, 3), None)}, lost=[(5, 2)])
    run(batches, {10: (length(10) - size(6, 2), None)}, lost=[(6, 2)])
    run(batches, {10: (0, None)}, lost=[(0, 10)])


def test_a_complete_batch_before_lost_entries_is_enough() -> None:
    batches = [(0, 900), (900, 70), (970, 10), (980, 10), (990, 20)]
    wanted = length(1_000) - size(980, 10)
    reads = [(999, 999), (990, 999), (968, 979)]
    run(batches, {1_000: (wanted, reads)}, lost=[(980, 10)])
