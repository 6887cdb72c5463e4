"""The read of metadata that admits requests for ledgers at or below the horizon (rule 10.3)."""

from pathlib import Path
from random import Random

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.storage.standing import Standing, standing_reader
from metadata.errors import StoreUnavailableError
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.store.memory_faults import NoFaults, StoreCall
from tests.support.bookie.bookie_machine import Machine
from tests.support.bookie.running_server import BOOKIE

ONE, TWO = LedgerId(1), LedgerId(2)
OTHER = BookieId("bookie-other")
TOKEN = UpdateToken(b"t" * 16)


class _LaggingService(NoFaults):
    """A service whose reads miss the newest changes unless they are fresh."""

    missed = 0

    @override
    def missed_changes(self, call: StoreCall) -> int:
        return 0 if call.is_fresh else self.missed


async def test_the_standing_follows_the_newest_metadata(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    service = machine.server.faults = _LaggingService()
    store, bookies_store = machine.store(), machine.store()
    ledgers = machine.ledgers(store)
    read = standing_reader(machine.ledgers(bookies_store), BOOKIE, Random(1))
    metadata = await machine.create_ledger(ONE, BOOKIE)
    await machine.create_ledger(TWO, OTHER)
    assert await read(ONE) is Standing.OPEN_HERE
    assert await read(TWO) is Standing.OPEN_ELSEWHERE

    closed = metadata.with_closed(EntryId(0), 7, TOKEN)
    await ledgers.compare_and_set(closed, (await ledgers.get(ONE, fresh=True))[1])
    service.missed = 1
    assert await read(ONE) is Standing.ENDED, "a read that is not fresh shows it open"

    await ledgers.delete(ONE)
    assert await read(ONE) is Standing.GONE
    await store.aclose()
    await bookies_store.aclose()


class _ReplacedLeader(NoFaults):
    """A service whose leader was replaced: fresh reads miss the newest change."""

    @override
    def missed_changes(self, call: StoreCall) -> int:
        return 0 if call.is_agreed or call.is_write else 1


async def test_a_ledger_that_a_replaced_leader_does_not_know_is_not_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    read = standing_reader(machine.ledgers(store), BOOKIE, Random(1))
    machine.server.faults = _ReplacedLeader()
    await machine.create_ledger(TWO, BOOKIE)
    assert await read(TWO) is Standing.OPEN_HERE
    await store.aclose()


async def test_a_member_that_a_replaced_leader_does_not_know_is_named(tmp_path: Path) -> None:
    """Otherwise the bookie answers UNKNOWN, and its writer replaces it."""
    machine = Machine(tmp_path)
    metadata = await machine.create_ledger(ONE, OTHER)
    store, bookies_store = machine.store(), machine.store()
    ledgers = machine.ledgers(store)
    read = standing_reader(machine.ledgers(bookies_store), BOOKIE, Random(1))
    _, version = await ledgers.get(ONE, fresh=True)
    machine.server.faults = _ReplacedLeader()
    named = metadata.with_ensemble_change(EntryId(0), (BOOKIE,), TOKEN)
    await ledgers.compare_and_set(named, version)
    assert await read(ONE) is Standing.OPEN_HERE
    await store.aclose()
    await bookies_store.aclose()


class _ThreeFailures(NoFaults):
    """A service that refuses three reads, as when a session ends and the next one begins."""

    left = 3

    @override
    async def before(self, call: StoreCall) -> None:
        if self.left and not call.is_write:
            self.left -= 1
            raise StoreUnavailableError("memory", "connection lost")


async def test_a_read_that_fails_at_once_is_repeated(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    read = standing_reader(machine.ledgers(store), BOOKIE, Random(1))
    machine.server.faults = faults = _ThreeFailures()
    assert await read(ONE) is Standing.OPEN_HERE
    assert faults.left == 0
    await store.aclose()


class _AgreedReads(NoFaults):
    """A service that counts agreed reads, each of which costs as much as a write."""

    count = 0

    @override
    async def before(self, call: StoreCall) -> None:
        self.count += call.is_agreed


async def test_an_open_or_ended_ledger_costs_no_agreed_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    metadata = await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    ledgers = machine.ledgers(store)
    read = standing_reader(ledgers, BOOKIE, Random(1))
    machine.server.faults = faults = _AgreedReads()
    assert await read(ONE) is Standing.OPEN_HERE
    closed = metadata.with_closed(EntryId(0), 7, TOKEN)
    await ledgers.compare_and_set(closed, (await ledgers.get(ONE, fresh=True))[1])
    assert await read(ONE) is Standing.ENDED
    assert faults.count == 0
    assert await read(TWO) is Standing.GONE
    assert faults.count == 1
    await store.aclose()
