"""Adds to single bookies in a story, as the old writer of a ledger sends them."""

import asyncio

from typing_extensions import override

from bookie.wire.batch import build_batch
from bookie.wire.messages import Status
from ledger_client.bookies.connection_calls import AddSink, CallFailure, PendingAdd
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.support.repair.repair_world import LONG_S, World


class Answer(AddSink):
    """Outcome of one add."""

    def __init__(self) -> None:
        self.status: asyncio.Future[Status | None] = asyncio.get_running_loop().create_future()

    @override
    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        self.status.set_result(status)

    @override
    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        self.status.set_result(None)


async def add_late(world: World, ledger: LedgerMetadata, entry_id: int, bookie_id: str) -> Status:
    """Send an ordinary add as the ledger's old writer would; return the answer."""
    assert world.client is not None
    pool = (await world.client._session.services()).pool
    keys = LedgerKeys.of(ledger, b"")
    batch = build_batch(
        ledger.ledger_id, EntryId(entry_id), EntryId(entry_id - 1), 5, [b"late"], keys.seed
    )
    pool.attach(ledger.ledger_id, keys.master_key)
    try:
        async with asyncio.timeout(LONG_S):
            while True:
                answer = Answer()
                add = PendingAdd(
                    ledger.ledger_id, batch, EntryId(entry_id), recovery=False, sink=answer
                )
                pool.add_to((BookieId(bookie_id),), add)
                status = await answer.status
                if status is not None:
                    return status
                await asyncio.sleep(0.5)
    finally:
        pool.detach(ledger.ledger_id)
