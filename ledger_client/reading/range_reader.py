"""Read of one range of entries from any replica that can return it, with a second request when the
first is slow.

Leaves the choice of replicas to `protocol/read.py`, and cutting long reads into ranges to
`reader.py`.

Invariants: returned entries are verified and start with the first requested one; a read ends by its
deadline; an entry is called missing only after the current metadata was read, because a repair may
have moved it. No bookie is asked for an entry whose loss was accepted.

Source: protocol rules 7.5, 8.2, 8.3, 8.6 and 9.9; storage design, "The batch".
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from bookie.wire.batch import BatchView
from bookie.wire.codec import Entries
from bookie.wire.messages import ReadEntries, Status
from ledger_client.batches import EntryBatch
from ledger_client.bookies.connection_calls import Refusals
from ledger_client.bookies.pool import BookieCallError
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    DigestMismatchError,
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    QuorumTimeoutError,
    UnauthorizedError,
)
from ledger_client.observability import EventCallback, ReplicaDamaged
from ledger_client.protocol import read as p
from ledger_client.protocol.suspicion import RecentLatency
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.verified_entries import VerifiedEntries, verify_entries
from metadata.backoff import Backoff
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import holders_of_entry, last_alike

SPECULATIVE_PART: Final = 0.95
SPECULATIVE_MULTIPLE: Final = 2.0
LEAST_S: Final = 0.001
"""Minimum time for a replica, or for the metadata, when the time is up."""
ReadFailure = p.ReportMissing | p.ReportUnreadable | p.ReportUnauthorized


@dataclass(frozen=True, slots=True)
class RangeEntries:
    """Result of a read of a range: at least its first entry."""

    batches: tuple[EntryBatch, ...]
    next_entry_id: EntryId


class EntryReads(Protocol):
    """Reads of entries of single bookies."""

    @property
    def refusals(self) -> Refusals:
        """Reasons of refusals, for errors."""

    async def read_entries(
        self, bookie_id: BookieId, request: ReadEntries, *, timeout_s: float
    ) -> Entries:
        """Read a range. Raises BookieCallError."""


class RangeReader:
    """Reads ranges of one ledger."""

    def __init__(
        self,
        ledger: FollowedLedger,
        keys: LedgerKeys,
        pool: EntryReads,
        config: ClientConfig,
        rng: Random,
        *,
        report: EventCallback | None = None,
    ) -> None:
        """Create a reader; `report` is called for each damaged entry that a bookie returns."""
        self._ledger = ledger
        self._keys = keys
        self._pool = pool
        self._config = config
        self._rng = rng
        self._report = report
        self._latency = RecentLatency()
        self._order = p.ReplicaOrder(rng.randrange(1 << 16))

    def range_end(self, first_entry_id: EntryId, last_entry_id: EntryId) -> EntryId:
        """Return the last entry up to which a read from `first_entry_id` on has the same
        replicas, and only entries that are lost, or none.
        """
        return last_alike(self._ledger.metadata, first_entry_id, last_entry_id)

    def require_not_lost(self, entry_id: EntryId) -> None:
        """Raise EntryLostError if the loss of an entry was accepted (rule 8.6)."""
        lost = self._ledger.metadata.lost_range_of(entry_id)
        if lost is not None:
            raise EntryLostError(ledger_id=self._ledger.ledger_id, entry_id=entry_id, lost=lost)

    def fragment_start(self, entry_id: EntryId) -> EntryId:
        """Return the first entry of an entry's fragment, according to the current metadata."""
        return self._ledger.metadata.fragment_of(entry_id).first_entry_id

    async def read(
        self, first_entry_id: EntryId, last_entry_id: EntryId, timeout_s: float
    ) -> RangeEntries:
        """Return entries from `first_entry_id` on, at most up to `last_entry_id`. Raises the errors
        of `read_verified`.
        """
        answer = await self.read_verified(first_entry_id, last_entry_id, timeout_s)
        last = EntryId(answer.next_entry_id - 1)
        shown = [
            EntryBatch(view, max(first_entry_id, header.first_entry_id), end)
            for view in answer.batches
            if (end := min(last, (header := view.header).last_entry_id)) >= header.first_entry_id
        ]
        return RangeEntries(tuple(shown), answer.next_entry_id)

    async def read_verified(
        self, first_entry_id: EntryId, last_entry_id: EntryId, timeout_s: float
    ) -> VerifiedEntries:
        """Return the batches as received, with entries from `first_entry_id` on, at most up to
        `last_entry_id`.

        Raises EntryNotFoundError, EntryLostError, DigestMismatchError, QuorumTimeoutError,
        UnauthorizedError, LedgerNotFoundError.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        backoff = Backoff(self._rng)
        while True:
            self.require_not_lost(first_entry_id)
            replicas = self.replicas(first_entry_id)
            last = self.range_end(first_entry_id, last_entry_id)
            outcome = await self._attempt(replicas, first_entry_id, last, deadline)
            if isinstance(outcome, VerifiedEntries):
                return outcome
            error = self._error(outcome, first_entry_id)
            left_s = max(LEAST_S, deadline - asyncio.get_running_loop().time())
            is_current = await self._ledger.refresh_if_possible(left_s)
            self.require_not_lost(first_entry_id)
            if self.replicas(first_entry_id) != replicas:
                continue  # a repair has moved the entry
            if isinstance(error, EntryNotFoundError) and not is_current:
                error = self._perhaps_moved(first_entry_id)
            now = asyncio.get_running_loop().time()
            if not isinstance(error, QuorumTimeoutError) or now >= deadline:
                raise error
            await asyncio.sleep(min(backoff.next_s(), deadline - now))

    def replicas(self, entry_id: EntryId) -> tuple[BookieId, ...]:
        """Return the bookies that hold an entry, according to the current metadata."""
        return holders_of_entry(self._ledger.metadata, entry_id)

    async def _attempt(
        self, replicas: tuple[BookieId, ...], first: EntryId, last: EntryId, deadline: float
    ) -> VerifiedEntries | ReadFailure:
        loop = asyncio.get_running_loop()
        protocol = p.RangeRead(self._order.order(replicas))
        events: asyncio.Queue[p.ReadEvent] = asyncio.Queue()
        answers: dict[BookieId, VerifiedEntries] = {}
        tasks: dict[BookieId, asyncio.Task[None]] = {}
        timer: asyncio.TimerHandle | None = None
        actions = protocol.start()
        try:
            while True:
                for action in actions:
                    match action:
                        case p.AskReplica(bookie_id):
                            ask = self._ask(bookie_id, first, last, deadline, events, answers)
                            tasks[bookie_id] = loop.create_task(ask)
                        case p.StartDelay():
                            if timer is not None:
                                timer.cancel()
                            share_s = (deadline - loop.time()) / len(replicas)
                            delay_s = min(self._speculative_delay_s(), max(share_s, 0.0))
                            timer = loop.call_later(delay_s, events.put_nowait, p.DelayPassed())
                        case p.Deliver(bookie_id):
                            self._note_outcome(list(tasks), bookie_id, answers[bookie_id])
                            return answers[bookie_id]
                        case _:
                            return action
                actions = protocol.handle(await events.get())
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _ask(
        self,
        bookie_id: BookieId,
        first: EntryId,
        last: EntryId,
        deadline: float,
        events: asyncio.Queue[p.ReadEvent],
        answers: dict[BookieId, VerifiedEntries],
    ) -> None:
        loop = asyncio.get_running_loop()
        config = self._config
        request = ReadEntries(
            self._ledger.ledger_id, first, last, config.read_bytes_max, fence=False
        )
        began = loop.time()
        timeout_s = min(config.read_timeout_s, max(deadline - began, LEAST_S))
        try:
            answer = await self._pool.read_entries(bookie_id, request, timeout_s=timeout_s)
        except BookieCallError as error:
            if error.status is None:
                events.put_nowait(p.ReplicaFailed(bookie_id, str(error)))
            else:
                refused = p.ReplicaAnswered(bookie_id, 0, error.status, str(error))
                events.put_nowait(refused)
            return
        self._latency.record(loop.time() - began)
        verified = verify_entries(answer, self._keys, first, last, bookie_id)
        answers[bookie_id] = verified
        if verified.is_damaged and self._report is not None:
            damaged = ReplicaDamaged(self._ledger.ledger_id, bookie_id, verified.next_entry_id)
            self._report(damaged)
        self._ledger.advance_lac(verified.lac)
        events.put_nowait(
            p.ReplicaAnswered(
                bookie_id,
                verified.next_entry_id - first,
                verified.status,
                verified.reason,
                verified.is_damaged,
            )
        )

    def _note_outcome(
        self, asked: list[BookieId], delivered: BookieId, answer: VerifiedEntries
    ) -> None:
        for bookie_id in asked:
            if bookie_id != delivered or answer.status is not Status.OK:
                self._order.note_bad(bookie_id)
            else:
                self._order.note_good(bookie_id)

    def _speculative_delay_s(self) -> float:
        return self._latency.patience_s(
            part=SPECULATIVE_PART,
            multiple=SPECULATIVE_MULTIPLE,
            at_least_s=self._config.speculative_delay_min_s,
            at_most_s=self._config.speculative_delay_max_s,
        )

    def _perhaps_moved(self, entry_id: EntryId) -> QuorumTimeoutError:
        return QuorumTimeoutError(
            f"no replica has entry {entry_id}, but a repair may have moved it, and the metadata "
            "service did not answer in time: try again",
            ledger_id=self._ledger.ledger_id,
            outcome="not_written",
            entry_id=entry_id,
        )

    def _error(self, failure: ReadFailure, entry_id: EntryId) -> LedgerError:
        ledger_id = self._ledger.ledger_id
        match failure:
            case p.ReportMissing():
                return EntryNotFoundError(
                    f"no replica has entry {entry_id}: `quire ledger verify {ledger_id}` shows "
                    "which entries have copies",
                    ledger_id=ledger_id,
                    entry_id=entry_id,
                )
            case p.ReportUnauthorized(bookie_id):
                text = f"bookie {bookie_id} refused the password: open it with the correct one"
                refused = UnauthorizedError(text, ledger_id=ledger_id)
                return self._pool.refusals.explained(refused)
            case p.ReportUnreadable(reasons, is_damaged):
                why = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in reasons.items())
                if is_damaged:
                    text = (
                        f"every returned copy of entry {entry_id} is damaged ({why}): start the "
                        f"bookies that are down, and run `quire ledger verify {ledger_id}`"
                    )
                    return DigestMismatchError(text, ledger_id=ledger_id, entry_id=entry_id)
                text = f"no replica returned entry {entry_id} ({why}): try again when they are up"
                return QuorumTimeoutError(
                    text, ledger_id=ledger_id, outcome="not_written", entry_id=entry_id
                )


WIDEN_FACTOR: Final = 32


async def find_length_before(ranges: RangeReader, entry_id: EntryId, timeout_s: float) -> int:
    """Return the ledger's bytes before an entry; all entries before it must exist, or be accepted
    as lost. Raises the errors of a read.

    Only headers of complete batches are used, because the writer wrote them and one CRC covers them
    with the rest; of slices only the sizes of the entries are used. The start of the ledger needs
    no batch. An earlier fragment is read only when all of a later one gave no complete batch: its
    bookies may be lost. Entries whose loss was accepted have the sizes that later batches imply; if
    no batch implies one, they count as empty.
    """
    window, first = 1, entry_id
    while True:
        fragment_start = ranges.fragment_start(EntryId(first - 1)) if first else first
        first = EntryId(max(fragment_start, entry_id - window))
        length = await _length_from(ranges, first, entry_id, timeout_s)
        if length is not None:
            return length
        window *= WIDEN_FACTOR


async def _length_from(
    ranges: RangeReader, first: EntryId, stop: EntryId, timeout_s: float
) -> int | None:
    """Return the length by adding from the first complete batch at or after `first`; None if there
    is none.
    """
    length = 0 if first == 0 else None
    position = first
    while position < stop:
        try:
            answer = await ranges.read_verified(position, EntryId(stop - 1), timeout_s)
        except EntryLostError as error:
            position = EntryId(error.lost_last + 1)
            continue
        for batch in answer.batches:
            if not batch.header.is_slice:
                length = batch.header.length_before + _bytes_before(batch, stop)
            elif length is not None:
                length += _bytes_before(batch, stop)
        position = answer.next_entry_id
    return length


def _bytes_before(batch: BatchView, stop: EntryId) -> int:
    return sum(batch.lengths[: stop - batch.header.first_entry_id])
