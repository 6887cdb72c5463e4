"""Shared setup of the pool's tests: a recording sink, and a pool over one bookie."""

import asyncio
from random import Random

from bookie.wire.batch import build_batch
from bookie.wire.messages import (
    Status,
)
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.observability import ClientEvent, Observer
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from tests.support.ledger_client.scripted_bookie import ScriptedAddresses, ScriptedBookie

LEDGER = LedgerId(7)
KEY = bytes(range(32))


class Outcomes:
    """AddSink that records its calls."""

    def __init__(self) -> None:
        self.outcomes: dict[int, list[Status | CallFailure]] = {}
        self.reasons: list[str] = []
        self._changed = asyncio.Event()

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        self._record(first_entry_id, status)

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        self.reasons.append(reason)
        self._record(first_entry_id, failure)

    async def wait_for(self, count: int) -> None:
        while len(self.outcomes) < count:
            self._changed.clear()
            await self._changed.wait()

    def _record(self, first_entry_id: EntryId, outcome: Status | CallFailure) -> None:
        self.outcomes.setdefault(first_entry_id, []).append(outcome)
        self._changed.set()


def batch_at(first_entry_id: int, payload: bytes = b"x", ledger_id: int = LEDGER) -> bytearray:
    return build_batch(LedgerId(ledger_id), EntryId(first_entry_id), NO_ENTRY, 0, [payload], 1)


def send(
    pool: BookiePool, bookie: ScriptedBookie, sink: Outcomes, first: int, size: int = 1
) -> None:
    batch = batch_at(first, bytes(size))
    pool.add(bookie.id, LEDGER, batch, EntryId(first), recovery=False, sink=sink)


class Setting:
    def __init__(self, bookie: ScriptedBookie, config: ClientConfig) -> None:
        self.addresses = ScriptedAddresses(bookie)
        self.events: list[ClientEvent] = []
        self.unavailable: list[tuple[BookieId, CallFailure]] = []
        self.observer = Observer(self.events.append)
        self.pool = BookiePool(
            self.addresses,
            config=config,
            rng=Random(1),
            credentials=b"token",
            client_name="test",
            observer=self.observer,
        )
        self.pool.on_unavailable(
            lambda bookie_id, failure, _: self.unavailable.append((bookie_id, failure))
        )


async def reconnect(pool: BookiePool, bookie: ScriptedBookie) -> None:
    while True:
        try:
            await pool.ping(bookie.id, timeout_s=5)
            return
        except BookieCallError:
            await asyncio.sleep(0.01)
