"""The read of metadata that admits requests for ledgers at or below the horizon (rule 10.3)."""

from pathlib import Path
from random import Random

from bookie.storage.horizon import LedgerStatus, ledger_status_reader
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from tests.support.bookie.bookie_machine import Machine
from tests.support.bookie.running_server import BOOKIE
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read

ONE, TWO = LedgerId(1), LedgerId(2)
OTHER = BookieId("bookie-other")
TOKEN = UpdateToken(b"t" * 16)


async def test_the_standing_follows_the_newest_metadata(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    service = machine.server.faults = ScriptedFaults()
    store, bookies_store = machine.store(), machine.store()
    ledgers = machine.ledgers(store)
    read = ledger_status_reader(machine.ledgers(bookies_store), BOOKIE, Random(1))
    metadata = await machine.create_ledger(ONE, BOOKIE)
    await machine.create_ledger(TWO, OTHER)
    assert await read(ONE) is LedgerStatus.OPEN_HERE
    assert await read(TWO) is LedgerStatus.OPEN_ELSEWHERE

    closed = metadata.with_closed(EntryId(0), 7, TOKEN)
    await ledgers.compare_and_set(closed, (await ledgers.get(ONE, fresh=True))[1])
    service.missed = 1
    assert await read(ONE) is LedgerStatus.ENDED, "a read that is not fresh shows it open"

    await ledgers.delete(ONE)
    assert await read(ONE) is LedgerStatus.GONE
    await store.aclose()
    await bookies_store.aclose()


def replaced_leader() -> ScriptedFaults:
    """Return a service whose leader was replaced: fresh reads miss the newest change."""
    faults = ScriptedFaults(missed=1)
    faults.missed_by_fresh = 1
    return faults


async def test_a_ledger_that_a_replaced_leader_does_not_know_is_not_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    read = ledger_status_reader(machine.ledgers(store), BOOKIE, Random(1))
    machine.server.faults = replaced_leader()
    await machine.create_ledger(TWO, BOOKIE)
    assert await read(TWO) is LedgerStatus.OPEN_HERE
    await store.aclose()


async def test_a_member_that_a_replaced_leader_does_not_know_is_named(tmp_path: Path) -> None:
    """Otherwise the bookie answers UNKNOWN, and its writer replaces it."""
    machine = Machine(tmp_path)
    metadata = await machine.create_ledger(ONE, OTHER)
    store, bookies_store = machine.store(), machine.store()
    ledgers = machine.ledgers(store)
    read = ledger_status_reader(machine.ledgers(bookies_store), BOOKIE, Random(1))
    _, version = await ledgers.get(ONE, fresh=True)
    machine.server.faults = replaced_leader()
    named = metadata.with_ensemble_change(EntryId(0), (BOOKIE,), TOKEN)
    await ledgers.compare_and_set(named, version)
    assert await read(ONE) is LedgerStatus.OPEN_HERE
    await store.aclose()
    await bookies_store.aclose()


async def test_a_read_that_fails_at_once_is_repeated(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    read = ledger_status_reader(machine.ledgers(store), BOOKIE, Random(1))
    machine.server.faults = faults = ScriptedFaults(is_read)
    faults.refusals = 3  # as when a session ends and the next one begins
    assert await read(ONE) is LedgerStatus.OPEN_HERE
    assert faults.refusals == 0
    await store.aclose()


async def test_an_open_or_ended_ledger_costs_no_agreed_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    metadata = await machine.create_ledger(ONE, BOOKIE)
    store = machine.store()
    ledgers = machine.ledgers(store)
    read = ledger_status_reader(ledgers, BOOKIE, Random(1))
    machine.server.faults = faults = ScriptedFaults(lambda call: call.is_agreed)
    assert await read(ONE) is LedgerStatus.OPEN_HERE
    closed = metadata.with_closed(EntryId(0), 7, TOKEN)
    await ledgers.compare_and_set(closed, (await ledgers.get(ONE, fresh=True))[1])
    assert await read(ONE) is LedgerStatus.ENDED
    assert not faults.calls
    assert await read(TWO) is LedgerStatus.GONE
    assert len(faults.calls) == 1, "it costs as much as a write"
    await store.aclose()
