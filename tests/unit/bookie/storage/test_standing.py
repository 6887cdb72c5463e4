"""The read of metadata that admits requests for ledgers at or below the horizon (rule 10.3)."""

from pathlib import Path

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.storage.standing import Standing, standing_reader
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
    read = standing_reader(machine.ledgers(bookies_store), BOOKIE)
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
