"""Ledgers that one log writes: performs what `roll_protocol` decides.

Leaves the list of ledgers to `ledger_list`, and the contents of ledgers to the log.

Closing a ledger and listing its end are tried again for as long as the metadata service is away.
While no next ledger can be created, the open one grows by at most `growth_bytes_max`; then appends
are refused.

Invariants: at most one ledger drains; it is closed with every entry written to it; a ledger that
was created and is not used is deleted, unless it may be listed.

Source: topics design, "What a takeover does" (rolling); protocol rule 6.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import NO_TIMESTAMP
from broker_layer.log import roll_protocol as e
from broker_layer.log.ledger_list import LedgerList, deposed
from broker_layer.log.roll_protocol import RollEvent, RollProtocol, StartWork, Work
from broker_layer.log.topic_configs import LogConfig
from ledger_client.errors import (
    ClientClosedError,
    LedgerError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError, StoreClosedError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.topics.partition import PartitionRecord, PartitionSegment

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenLedger:
    """A ledger that this leader writes. Its entries count once it is listed."""

    writer: LedgerWriter
    segment: PartitionSegment
    is_listed: bool = False
    written_bytes: int = 0
    record_bytes: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP

    @property
    def confirmed(self) -> EntryId:
        """The last entry that counts; -1 for none."""
        return self.writer.last_confirmed if self.is_listed else EntryId(-1)


class LedgerUser(Protocol):
    """The log that writes these ledgers."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    def begin_ledger(self, ledger: OpenLedger) -> None:
        """Write to this ledger from now on."""

    def resume(self) -> None:
        """Continue: a ledger was listed, or the last one was ended."""

    def refuse_deferred(self, error: TopicError) -> None:
        """Refuse what waits for the first ledger."""

    def fail(self, text: str) -> object:
        """End the log, which calls `abandon`."""


class LedgerRoller:
    """The ledgers that one log writes.

    With `fill`, appends wait while the roller switches over, and `fill` writes the log's state into
    each ledger before the log appends to it.
    """

    def __init__(
        self,
        owner: LedgerUser,
        ledger_list: LedgerList,
        config: LogConfig,
        *,
        early_share: float = 1.0,
        last: LedgerInfo | None = None,
        fill: Callable[[LedgerWriter], Awaitable[None]] | None = None,
    ) -> None:
        self._owner = owner
        self._ledger_list = ledger_list
        self.config = config
        self._fill = fill
        self._protocol = RollProtocol(early_share=early_share, fills_first=fill is not None)
        self.ledger: OpenLedger | None = None
        """The ledger that new entries go to."""
        self._draining: OpenLedger | None = None
        self._next: LedgerWriter | None = None
        self._next_quorum = config.quorum
        """The quorum that `_next` was created with; it may have fewer replicas now."""
        self._last = last
        """The newest ledger that is closed."""
        self._close_wait_s: float | None = None
        self._run: StartWork | None = None
        self._task: asyncio.Task[None] | None = None

    # -- properties ------------------------------------------------------------------------------

    @property
    def newest(self) -> OpenLedger | None:
        """The newest ledger that was written; None before the first and after the end."""
        return self.ledger or self._draining

    @property
    def replicas(self) -> tuple[BookieId, ...]:
        """The bookies of the newest ledger."""
        if self.newest is not None:
            return self.newest.writer.members
        return () if self._last is None else self._last.fragments[-1].ensemble

    @property
    def wanted_replicas(self) -> int:
        """Number of bookies that the newest ledger is to have; 0 before the first ledger."""
        if self.newest is not None:
            return max(
                self.newest.writer.admission.quorum.ensemble_size, self.config.quorum.ensemble
            )
        return 0 if self._last is None else self._last.quorum.ensemble_size

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """The replicas known to store every committed entry."""
        if self.newest is not None and self.newest.writer.admission.quorum.is_in_sync:
            return self.newest.writer.in_sync
        return self.replicas

    @property
    def written_bytes(self) -> int:
        """Bytes of the ledgers whose end is not listed yet."""
        return sum(part.written_bytes for part in (self.ledger, self._draining) if part is not None)

    def confirmed_of(self, ledger_id: LedgerId) -> EntryId | None:
        """Return the last confirmed entry of a ledger that is being written; else None."""
        for ledger in (self.ledger, self._draining):
            if ledger is not None and ledger.writer.id == ledger_id:
                return ledger.writer.last_confirmed
        return None

    def has_state(self, ledger_id: LedgerId) -> bool:
        """Return whether the first entry of a listed ledger is confirmed: it contains a state. One
        that was ended earlier has it, unless all its entries were given up.
        """
        last_id = self.confirmed_of(ledger_id)
        if last_id is None and self._last is not None and self._last.id == ledger_id:
            last_id = self._last.last_entry_id
        return last_id is None or last_id >= 0

    def note_repaired(self, info: LedgerInfo) -> None:
        """Take what repair changed of a closed ledger, if it is the newest one."""
        if self._last is not None and self._last.id == info.id:
            self._last = info

    # -- events ----------------------------------------------------------------------------------

    def want_ledger(self) -> None:
        """Begin the first ledger, unless it is being begun."""
        if self.ledger is None:
            self._handle(e.LedgerWanted())

    def roll_if_due(self, *, is_wanted: bool = False) -> None:
        """Create the next ledger, or roll to it, if it is due by size or wanted."""
        ledger = self.ledger
        if ledger is None or not ledger.record_bytes:
            return
        share = 1.0 if is_wanted else ledger.written_bytes / self.config.segment_bytes
        if self._protocol.is_due(share):
            is_same = self._next_quorum == self.config.quorum
            is_usable = is_same and self._next is not None and self._next.is_usable
            self._handle(e.LedgerGrown(share, is_usable))

    def require_room(self, code: ErrorCode) -> None:
        """Raise TopicError with a code that clients retry if the ledger is too large.

        Its limit is the segment size plus `growth_bytes_max`. A roll is tried first.
        """
        ledger = self.ledger
        growth_bytes_max = self._ledger_list.services.growth_bytes_max
        if ledger is None or ledger.written_bytes < self.config.segment_bytes + growth_bytes_max:
            return
        self.roll_if_due()
        if self.ledger is ledger:
            text = f"ledger {ledger.writer.id} has {ledger.written_bytes} B, which is its limit"
            advice = "retry; if this lasts, check the bookies and the metadata service"
            raise TopicError(
                code, f"{text}, and the next ledger could not be created yet: {advice}"
            )

    async def end(self, wait_s: float) -> None:
        """Close the open ledger and list its end; wait up to `wait_s` for unconfirmed entries."""
        self._close_wait_s = wait_s
        self._handle(e.EndRequested())
        if self._task is not None:
            await asyncio.shield(asyncio.gather(self._task, return_exceptions=True))

    def abandon(self) -> None:
        """Stop at once; the next leader recovers the open ledger."""
        self._handle(e.Abandoned())

    async def aclose(self) -> None:
        """Wait until every task has ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ledger_list.aclose()

    # -- actions ---------------------------------------------------------------------------------

    def _handle(self, event: RollEvent) -> None:
        for action in self._protocol.handle(event):
            match action:
                case StartWork():
                    self._start(action)
                case e.UseNext():
                    assert self._next is not None
                    self.ledger = OpenLedger(self._next, self._new_segment(self._next))
                    self._next = None
                    self._owner.begin_ledger(self.ledger)
                case e.Complete():
                    if self.ledger is not None:
                        self.ledger.is_listed = True
                    self._draining = None
                    self._owner.resume()
                case e.DropNext(is_listed):
                    if self._next is not None:
                        self._ledger_list.end_later(self._next, is_listed=is_listed)
                        self._next = None
                case e.RefuseAppends(error):
                    self._owner.refuse_deferred(error)
                case e.AbortAll():
                    self._abort_all()

    def _start(self, run: StartWork) -> None:
        if self._protocol.has_ended:
            return  # an action before this one made the log fail
        if run.work is Work.CLOSE:
            self._draining, self.ledger = self.ledger, None
        self._run = run
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _abort_all(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        for ledger in (self.ledger, self._draining):
            if ledger is not None:
                self._ledger_list.end_later(ledger.writer, is_listed=True)
        self.ledger = self._draining = self._run = None

    # -- work ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Perform the work that is due, until there is none."""
        try:
            while self._run is not None:
                run, self._run = self._run, None
                if run.after_s:
                    await asyncio.sleep(run.after_s)
                self._handle(await self._outcome(run.work))
        except TopicError as error:
            self._owner.fail(error.text)
        except Exception as error:  # callers that wait for the ledger must receive the failure
            log.exception("a ledger cannot be begun or ended")
            self._owner.fail(f"{type(error).__name__}: {error}")
        finally:
            self._task = None

    async def _outcome(self, work: Work) -> RollEvent:
        try:
            await self._attempt(work)
        except (LedgerError, MetadataError) as error:
            if not _is_refusal(work, error):
                raise deposed(str(error)) from error
            log.info("a log cannot %s now: %s", work.value, error)
            is_short = isinstance(error, NotEnoughBookiesError)
            code = ErrorCode.NOT_ENOUGH_REPLICAS if is_short else ErrorCode.KAFKA_STORAGE_ERROR
            return e.WorkRefused(TopicError(code, f"the log cannot {work.value} now: {error}"))
        return e.WorkDone()

    async def _attempt(self, work: Work) -> None:
        match work:
            case Work.CREATE:
                self._next_quorum = self.config.quorum
                self._next = await self._ledger_list.create_writer(self._next_quorum)
            case Work.LIST:
                await self._ledger_list.change(self._listed)
            case Work.FILL:
                assert self._fill is not None
                assert self._next is not None
                await self._fill(self._next)
            case Work.CLOSE | Work.RECOVER:
                assert self._draining is not None
                writer = self._draining.writer
                if work is Work.CLOSE:
                    await writer.aclose(timeout=self._close_wait_s)
                    info = writer.info
                else:
                    info = await self._ledger_list.services.client.recover_ledger(writer.id)
                if info.last_entry_id != writer.last_pushed:
                    text = f"was closed at entry {info.last_entry_id} by another broker"
                    raise deposed(f"ledger {writer.id} {text}")
                self._last = info
            case Work.PAUSE:
                pass

    def _new_segment(self, writer: LedgerWriter) -> PartitionSegment:
        """Return the list's item for the new ledger, which begins at the end of the log."""
        last = self._ledger_list.record.last_segment
        if last is not None and last.ledger_id == writer.id:
            return last
        return self._ledger_list.new_segment(writer.id, self._owner.log_end_offset)

    def _listed(self, record: PartitionRecord) -> PartitionRecord:
        """Return the list with the end of the draining ledger, and with the new ledger."""
        old, info = self._draining, self._last
        new = None if self.ledger is None else self.ledger.segment
        if self._next is not None:
            new = self._new_segment(self._next)
        if old is not None and info is not None:
            end = self._owner.log_end_offset if new is None else new.base_offset
            newest_ms = old.max_timestamp_ms if self._fill is None else None  # a state has no times
            record = record.with_segment_ended(old.writer.id, end, info.length or 0, newest_ms)
        return record if new is None else record.with_segment(new)


def _is_refusal(work: Work, error: LedgerError | MetadataError) -> bool:
    """Return whether the work had no effect and may be possible later."""
    if work is Work.CLOSE:
        return isinstance(error, MetadataUnavailableError)
    is_final = isinstance(error, (ClientClosedError, StoreClosedError))
    return work is Work.CREATE or (work is not Work.FILL and not is_final)
