"""A reader's view of a ledger misses no change (protocol 8.4), and its LAC is as fresh as an ack
quorum (protocol 8.1, 3.2).
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from ledger_client.errors import LedgerNotFoundError, MetadataUnavailableError
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.tailing import read_lac
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import ledger_path
from metadata.store.interface import Cancel, WatchCallback
from metadata.store.memory import MemoryMetadataStore
from quire.server.overriding import override
from tests.support.ledger_client.ledger_world import LEDGER, payloads
from tests.support.ledger_client.recovery_world import World, run
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read

TOKEN = UpdateToken(b"changed by tests")


def followed(world: World) -> FollowedLedger:
    ledgers = LedgerStore(MemoryMetadataStore(world.server), Random(1), lambda: 0)
    ledger = FollowedLedger(world.metadata, world.version, ledgers, Random(2))
    ledger.start()
    return ledger


async def change(world: World, first: int, names: str) -> None:
    ensemble = tuple(BookieId(name) for name in names)
    world.metadata = world.metadata.with_ensemble_change(EntryId(first), ensemble, TOKEN)
    world.version = await world.ledgers.compare_and_set(world.metadata, world.version)


def test_a_change_during_the_read_of_another_one_is_read_too() -> None:
    async def scenario(world: World) -> None:
        ledger = followed(world)
        world.server.faults = ScriptedFaults(is_read, answer_s=1.0)
        await change(world, 10, "abd")
        await asyncio.sleep(0.5)
        await change(world, 20, "abe")
        await asyncio.sleep(10)
        assert ledger.metadata == world.metadata
        assert ledger.last_confirmed == 19
        await ledger.aclose()

    run(scenario)


def test_the_lac_is_as_fresh_as_an_ack_quorum() -> None:
    """The quickest bookie lacks the newest entries: its answer alone does not cover."""

    async def scenario(world: World) -> None:
        ledger = followed(world)
        world.bookies.write(0, payloads(0, 10), lac=-1, length_before=0, to="a,b,c")
        for name, lac, delay_s in [("a", 3, 0.001), ("b", 9, 0.1), ("c", 9, 5.0)]:
            world.bookies[name].advance(lac)
            world.bookies[name].delay_s = delay_s
        began = asyncio.get_running_loop().time()
        await read_lac(ledger, world.bookies.pool, 10.0)
        assert ledger.last_confirmed == 9
        assert asyncio.get_running_loop().time() - began < 1
        await ledger.aclose()

    run(scenario)


# -- reads and watches -----------------------------------------------------------------------------


class CountedWatches(LedgerStore):
    """Ledger store that counts the watches that were set and not cancelled."""

    count = 0

    @override
    def watch(self, ledger_id: LedgerId, callback: WatchCallback) -> Cancel:
        cancel = super().watch(ledger_id, callback)
        self.count += 1

        def end() -> None:
            self.count -= 1
            cancel()

        return end


class Followed:
    """One followed ledger, its service, and the number of reported changes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MemoryMetadataStore(world.server)
        self.ledgers = CountedWatches(self.store, Random(1), lambda: 0)
        self.faults = ScriptedFaults(is_read)
        world.server.faults = self.faults
        self.ledger = FollowedLedger(world.metadata, world.version, self.ledgers, Random(2))
        self.changes = 0
        self.cancel = self.ledger.on_change(self._count)

    def _count(self) -> None:
        self.changes += 1

    async def close(self, last: int) -> None:
        world = self.world
        world.metadata = world.metadata.with_closed(EntryId(last), 100, TOKEN)
        world.version = await world.ledgers.compare_and_set(world.metadata, world.version)

    async def delete(self) -> None:
        await self.world.ledgers.delete(LEDGER)


def run_followed(scenario: Callable[[Followed], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        followed = Followed(world)
        await scenario(followed)
        await followed.ledger.aclose()
        assert followed.ledgers.count == 0

    run(main)


def test_a_closed_ledger_is_not_followed() -> None:
    async def scenario(it: Followed) -> None:
        await it.close(9)
        ledger = FollowedLedger(it.world.metadata, it.world.version, it.ledgers, Random(2))
        ledger.start()
        assert (ledger.is_closed, ledger.last_confirmed, it.ledgers.count) == (True, 9, 0)

    run_followed(scenario)


def test_an_open_ledger_is_confirmed_up_to_its_last_fragment() -> None:
    async def scenario(it: Followed) -> None:
        assert it.ledger.last_confirmed == -1
        await change(it.world, 10, "abd")
        ledger = FollowedLedger(it.world.metadata, it.world.version, it.ledgers, Random(2))
        assert (ledger.ledger_id, ledger.last_confirmed, ledger.is_deleted) == (LEDGER, 9, False)

    run_followed(scenario)


def test_only_a_newer_lac_is_a_change() -> None:
    async def scenario(it: Followed) -> None:
        for lac, confirmed, changes in ((4, 4, 1), (4, 4, 1), (3, 4, 1), (5, 5, 2)):
            it.ledger.advance_lac(EntryId(lac))
            assert (it.ledger.last_confirmed, it.changes) == (confirmed, changes)
        it.cancel()
        it.ledger.advance_lac(EntryId(6))
        assert (it.ledger.last_confirmed, it.changes) == (6, 2)

    run_followed(scenario)


def test_the_close_ends_the_watch_and_the_lac() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        assert it.ledgers.count == 1
        await it.close(9)
        await asyncio.sleep(1.0)
        assert (it.ledger.is_closed, it.ledger.last_confirmed, it.changes) == (True, 9, 1)
        assert it.ledgers.count == 0
        it.ledger.advance_lac(EntryId(20))
        assert (it.ledger.last_confirmed, it.changes) == (9, 1)

    run_followed(scenario)


def test_a_close_just_before_the_watch_was_set_is_read() -> None:
    async def scenario(it: Followed) -> None:
        await it.close(9)
        it.faults.missed = 1  # an ordinary read shows an older state, as another server may
        it.ledger.start()
        await asyncio.sleep(1.0)
        assert (it.ledger.is_closed, it.ledger.last_confirmed, it.changes) == (True, 9, 1)
        assert (it.ledgers.count, it.faults.fresh) == (0, [True])

    run_followed(scenario)


def test_a_change_of_the_ensemble_keeps_the_watch_and_a_higher_lac() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        it.ledger.advance_lac(EntryId(12))
        await change(it.world, 10, "abd")
        await asyncio.sleep(1.0)
        assert it.ledger.metadata == it.world.metadata
        assert (it.ledger.last_confirmed, it.ledgers.count) == (12, 1)

    run_followed(scenario)


def test_a_read_that_is_no_newer_changes_nothing() -> None:
    async def scenario(it: Followed) -> None:
        await change(it.world, 10, "abd")
        await it.ledger.refresh()
        await it.ledger.refresh()
        assert (it.ledger.last_confirmed, it.changes) == (9, 1)
        assert it.faults.fresh == [False, False]

    run_followed(scenario)


def test_a_read_that_is_older_changes_nothing() -> None:
    async def scenario(it: Followed) -> None:
        await change(it.world, 10, "abd")
        ledger = FollowedLedger(it.world.metadata, it.world.version, it.ledgers, Random(2))
        it.faults.missed = it.faults.missed_by_fresh = 1
        await ledger.refresh()
        assert (ledger.metadata, ledger.version) == (it.world.metadata, it.world.version)

    run_followed(scenario)


def test_the_newest_metadata_is_read_if_possible() -> None:
    async def scenario(it: Followed) -> None:
        await change(it.world, 10, "abd")
        it.faults.is_away = True
        with pytest.raises(MetadataUnavailableError):
            await it.ledger.refresh()
        await it.ledger.refresh_if_possible(30.0)
        assert it.changes == 0
        it.faults.is_away = False
        await it.ledger.refresh_if_possible(30.0)
        assert (it.ledger.metadata, it.changes) == (it.world.metadata, 1)
        assert it.faults.fresh == [False, True, True]

    run_followed(scenario)


def test_a_deletion_ends_the_watch_and_is_a_change() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        await it.delete()
        await asyncio.sleep(1.0)
        assert (it.ledger.is_deleted, it.changes, it.ledgers.count) == (True, 1, 0)
        with pytest.raises(LedgerNotFoundError, match="deleted with its entries") as raised:
            await it.ledger.refresh_if_possible(30.0)
        assert raised.value.ledger_id == LEDGER

    run_followed(scenario)


def test_nothing_is_read_after_the_end() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        it.faults.answer_s = 5.0
        await change(it.world, 10, "abd")
        await asyncio.sleep(1.0)
        await it.ledger.aclose()
        await change(it.world, 20, "abe")
        await asyncio.sleep(10.0)
        assert (it.ledger.last_confirmed, len(it.faults.fresh), it.ledgers.count) == (-1, 1, 0)

    run_followed(scenario)


def test_changes_during_one_read_need_one_more() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        it.faults.answer_s = 5.0
        for number, names in enumerate(("abd", "abe", "abf"), 1):
            await change(it.world, 10 * number, names)
            await asyncio.sleep(1.0)
        await asyncio.sleep(20.0)
        assert (it.ledger.last_confirmed, len(it.faults.fresh)) == (29, 2)
        await change(it.world, 40, "abc")
        await asyncio.sleep(20.0)
        assert (it.ledger.last_confirmed, len(it.faults.fresh)) == (39, 3)

    run_followed(scenario)


def test_a_service_that_is_away_is_read_again_with_pauses() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        it.faults.is_away = True
        await change(it.world, 10, "abd")
        await asyncio.sleep(30.0)
        assert it.ledger.last_confirmed == -1
        assert 15 < len(it.faults.fresh) < 100
        it.faults.is_away = False
        await asyncio.sleep(20.0)
        assert it.ledger.metadata == it.world.metadata

    run_followed(scenario)


def test_a_deletion_that_another_read_finds_ends_the_repeated_reads() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        it.faults.is_away = True
        await change(it.world, 10, "abd")
        await asyncio.sleep(10.0)
        it.faults.is_away = False
        await it.delete()
        with pytest.raises(LedgerNotFoundError):
            await it.ledger.refresh()
        count = len(it.faults.fresh)
        await asyncio.sleep(10.0)
        assert (len(it.faults.fresh), it.changes) == (count, 1)

    run_followed(scenario)


def test_a_value_that_cannot_be_read_does_not_end_the_following() -> None:
    async def scenario(it: Followed) -> None:
        it.ledger.start()
        path = ledger_path(LEDGER)
        version = await it.world.store.compare_and_set(path, b"damaged", it.world.version)
        await asyncio.sleep(10.0)
        assert (len(it.faults.fresh), it.changes) == (1, 0)
        changed = it.world.metadata.with_ensemble_change(
            EntryId(10), tuple(map(BookieId, "abd")), TOKEN
        )
        await it.world.ledgers.compare_and_set(changed, version)
        await asyncio.sleep(10.0)
        assert (it.ledger.metadata, it.changes) == (changed, 1)

    run_followed(scenario)
