"""Second half of the demo: a client takes over a ledger while its writer is alive and appends.

Leaves the cluster and the report to `quire.demo`.

Source: protocol rules 4.7, 7.1-7.5.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger_client import LedgerClient, LedgerError, LedgerWriter, Quorum
from metadata.cancelling import cancel_and_wait
from quire.demo_view import DemoView

QUORUM: Final = Quorum(ensemble=3, write=3, ack=2)
LIVE_ENTRIES: Final = 200
"""Number of entries that the first writer has confirmed before the takeover."""
REFUSAL_WAIT_S: Final = 20.0


class Checks(Protocol):
    """Recorder of claims and whether they are true."""

    def __call__(self, claim: str, seen: str, *, holds: bool) -> None:
        """Record one claim."""


@dataclass(slots=True)
class _FirstWriter:
    """Results that the first writer received."""

    confirmed: dict[int, bytes] = field(default_factory=dict)
    refusal: LedgerError | None = None
    is_under_way: asyncio.Event = field(default_factory=asyncio.Event)


async def take_over(metadata_uri: str, view: DemoView, check: Checks) -> None:
    """Append with one client, recover its ledger with another; check the results of both."""
    first = _FirstWriter()
    async with LedgerClient(metadata_uri) as owner, LedgerClient(metadata_uri) as successor:
        ledger = await owner.create_ledger(QUORUM)
        view.say(f"A first client appends to ledger {ledger.id}, without end.")
        appending = asyncio.create_task(_append_until_refused(ledger, first))
        try:
            await first.is_under_way.wait()
            view.say("A second client takes the ledger over: it fences, recovers and closes it.")
            info = await successor.recover_ledger(ledger.id)
            await asyncio.wait_for(appending, REFUSAL_WAIT_S)
        finally:
            await cancel_and_wait(appending)
            await _close_quietly(ledger)
        last = -1 if info.last_entry_id is None else info.last_entry_id
        view.say(f"    closed at entry {last:,} by the second client")
        view.say(f"    the first client received: {first.refusal}")
        check(
            "the first writer was refused after the takeover",
            type(first.refusal).__name__,
            holds=type(first.refusal).__name__ == "LedgerFencedError",
        )
        lost = [i for i in first.confirmed if i > last]
        differing = await _differing(successor, ledger.id, last, first.confirmed)
        check(
            "every entry that the first writer had confirmed is in the closed ledger",
            f"{len(first.confirmed):,} confirmed, {len(lost)} lost, {differing} changed",
            holds=info.is_closed and not lost and not differing,
        )


async def _append_until_refused(ledger: LedgerWriter, first: _FirstWriter) -> None:
    number = 0
    while True:
        data = f"order {number}".encode()
        try:
            first.confirmed[await ledger.append(data)] = data
        except LedgerError as error:
            first.refusal = error
            first.is_under_way.set()
            return
        number += 1
        if number == LIVE_ENTRIES:
            first.is_under_way.set()


async def _differing(
    client: LedgerClient, ledger_id: int, last: int, confirmed: dict[int, bytes]
) -> int:
    if last < 0:
        return 0
    count = 0
    async with client.open_ledger(ledger_id) as reader:
        async for batch in reader.read(0, last):
            count += sum(confirmed.get(e.id, e.data) != e.data for e in batch)
    return count


async def _close_quietly(ledger: LedgerWriter) -> None:
    try:
        await ledger.abort()
    except LedgerError:
        return  # refused: the refusal is already recorded
