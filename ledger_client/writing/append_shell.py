"""Shell of the append protocol for one ledger: sends, stores metadata, resolves callers.

Leaves the decisions to `protocol.append`, and the public interface to `writer`.

Invariants: events are handled one at a time and their actions performed in the order given; a
batch's bytes are kept, and resent unchanged, until it is confirmed (rule 4.2).

Source: protocol sections 4-6, rules 1.3-1.4.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, assert_never

from bookie.wire.messages import Status
from ledger_client.bookies.connection_calls import CallFailure, PendingAdd
from ledger_client.bookies.placement import Shortage
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.ledger_cipher import PayloadSealer
from ledger_client.errors import LedgerError, LedgerNotFoundError
from ledger_client.metadata_failures import translate
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_events import failed_inside
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.tasks import BackgroundTasks
from ledger_client.writing.confirmations import Confirmations, FirstReplicaWaiters, FullReplication
from ledger_client.writing.outbox import AppendWindow, Outbox
from ledger_client.writing.pacing import Call
from ledger_client.writing.writer_services import WriterServices
from metadata.errors import (
    MetadataError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import (
    NO_ENTRY,
    BookieId,
    EntryId,
    LedgerId,
    Version,
)
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.tracing import spans as tracing

READ_BACK_PAUSE_S: Final = 0.2
STORED: Final = Status.OK
REFUSALS_OF_A_BOOKIE: Final = (
    Status.BAD_REQUEST,
    Status.READ_ONLY,
    Status.UNKNOWN,
    Status.CLOSING,
)
"""Refusals that concern the bookie, not the ledger: other bookies can store the batch."""


class AppendShell:
    """Internal part of one ledger's writer. An `AddSink` of the pool."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: Version,
        keys: LedgerKeys,
        services: WriterServices,
        observe: Callable[[e.MembersChanged | e.FailWriter], None],
        sealer: PayloadSealer | None = None,
    ) -> None:
        config = services.config
        options = AppendOptions(
            delay_ensemble_change=config.delay_ensemble_change,
            run_degraded=config.run_degraded,
            unanswered_bytes_max=config.unanswered_bytes_max,
            fixed_membership=config.fixed_membership,
        )
        self.protocol = AppendProtocol(metadata, version, options)
        self.outbox = Outbox(keys, sealer)
        self.window = AppendWindow(config.window_bytes_max, config.window_entries_max)
        self.confirmations = Confirmations(services.next_tick)
        self.first_replica_waiters = FirstReplicaWaiters()
        self.replication = FullReplication(metadata.ledger_id)
        self.closed: asyncio.Future[LedgerMetadata] = asyncio.get_running_loop().create_future()
        self.failure: LedgerError | None = None
        self._services = services
        self._observe = observe
        self._events: deque[e.AppendEvent] = deque()
        self._is_dispatching = False
        self._has_turn = False
        self._unsent: _ChangeStep | None = None  # nothing of it was sent to the metadata service
        self._storing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tasks = BackgroundTasks()

    def push(self, payloads: Sequence[bytes], payload_bytes: int, now: float) -> None:
        """Send entries, which form one batch, to their write set."""
        first = self.outbox.build(payloads, payload_bytes, self.protocol.lac, now)
        self.dispatch(e.BatchAppended(first, len(payloads), payload_bytes))

    def dispatch(self, event: e.AppendEvent) -> None:
        """Handle an event, and the events that its actions cause."""
        if self._is_dispatching:
            self._events.append(event)
            return
        self._is_dispatching = True
        try:
            for action in self.protocol.handle(event):
                self._perform(action)
            while self._events:
                for action in self.protocol.handle(self._events.popleft()):
                    self._perform(action)
        finally:
            self._is_dispatching = False

    def end_after(self, error: Exception) -> LedgerError:
        """End the writer after an exception inside the client that left entries with ids and
        without bytes; return the error that ended it. The exception is reported to the loop.
        """
        self.dispatch(e.WriterFailed(failed_inside(self.protocol.metadata, error)))
        what = {"message": "a writer ended: an append failed in it", "exception": error}
        asyncio.get_running_loop().call_exception_handler(what)
        assert self.failure is not None, "it ended now, or before"
        return self.failure

    async def aclose(self) -> None:
        """Stop background work. A metadata update under way may still be applied."""
        self._is_closed = True
        await self._tasks.aclose()

    def drop_unsent(self) -> None:
        """Drop the change that is under way if nothing needs it any more, and nothing of it was
        sent: there is no connection to the metadata service (rule 5.9).
        """
        if self._unsent is not None and not self._services.ledgers.is_connected:
            self.dispatch(e.ChangeUnsent())

    def in_turn(self, reason: str, call: Call, *, urgent: bool) -> None:
        """Make a call that may begin a change of the metadata when it is this ledger's turn."""
        key = self.replication.ledger_id, reason
        self._services.turns.want(key, partial(self._make_in_turn, call), urgent=urgent)

    def _make_in_turn(self, call: Call) -> None:
        if self._is_closed:
            return
        self._has_turn = True
        try:
            call()
        finally:
            self._has_turn = False

    # -- reports of the pool -----------------------------------------------------------------------

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Receive a bookie's answer."""
        if status is STORED:
            if self.first_replica_waiters.are_expected:
                last_entry_id = self.outbox.last_entry_of(first_entry_id)
                self.first_replica_waiters.note(first_entry_id, last_entry_id)
            self.dispatch(e.BatchStored(first_entry_id, bookie_id))
        else:
            if status in REFUSALS_OF_A_BOOKIE:
                self._services.on_refused(bookie_id, status)
            self.dispatch(e.StoreRefused(first_entry_id, bookie_id, status))

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Receive the report that a bookie will not answer."""
        if failure is CallFailure.CLOSED:
            return  # the client is being closed: its session ends the writer
        backlog = failure is CallFailure.OVERFLOW
        kind = e.FailureKind.BACKLOG if backlog else e.FailureKind.GONE
        text = f"{failure.value}: {reason} (entry {first_entry_id})"
        # A lost connection fails the adds of many ledgers at the same time.
        self._services.slices.soon(partial(self.dispatch, e.BookieFailed(bookie_id, kind, text)))

    # -- actions ---------------------------------------------------------------------------------

    def _perform(self, action: e.AppendAction) -> None:
        match action:
            case e.SendBatch():  # no capture patterns: they cost more than the rest
                self._send(action.first_entry_id, action.bookie_ids)
            case e.Confirm():
                if tracing.is_on():
                    self._trace(action.lac)
                self.window.release(*self.outbox.release(action.lac))
                self.confirmations.confirm(action.lac)
            case e.Settle():
                self.replication.settle(action.entry_id)
            case e.RecordStretch(first, last):
                self.replication.record_stretch(first, last)
            case (
                e.ChooseReplacements()
                | e.ProposeMembers()
                | e.StoreMetadata()
                | e.ReadMetadata()
                | e.DropChange()
            ):
                self._change(action)
            case e.MembersChanged():
                self._observe(action)
            case e.FailWriter(error):
                self._fail(self._services.pool.refusals.explained(error))
                self._observe(action)
            case e.Closed(metadata):
                if not self.closed.done():
                    self.closed.set_result(metadata)
            case _ as never:
                assert_never(never)

    def _trace(self, lac: EntryId, error: str = "") -> None:
        now = asyncio.get_running_loop().time()
        for first_entry_id, batch in self.outbox.confirmed(lac):
            attributes = {
                tracing.LEDGER: self.replication.ledger_id,
                tracing.FIRST_ENTRY: first_entry_id,
                tracing.LAST_ENTRY: batch.last_entry_id,
                tracing.BATCH_BYTES: batch.payload_bytes,
            }
            duration_s = now - batch.appended_at
            kind, parent = tracing.SpanKind.CLIENT, batch.context
            tracing.record(
                "ledger.append", kind, duration_s, attributes, parent=parent, error=error
            )

    def _send(self, first_entry_id: EntryId, bookie_ids: tuple[BookieId, ...]) -> None:
        data = self.outbox.data(first_entry_id)
        add = PendingAdd(
            self.replication.ledger_id, data, first_entry_id, recovery=False, sink=self
        )
        self._services.pool.add_to(bookie_ids, add)

    def _change(self, action: "_ChangeStep | e.DropChange") -> None:
        """Take the next step of a change when it is this ledger's turn, or drop the change."""
        if isinstance(action, e.DropChange):
            self._unsent = None
            if self._storing is not None:
                self._storing.cancel()
            return
        self._unsent = action
        if self._has_turn:
            self._continue_change(action)
        else:  # nothing is confirmed until then (5.2)
            self.in_turn("change", partial(self._continue_change, action), urgent=True)

    def _continue_change(self, action: "_ChangeStep") -> None:
        """Perform one step of a change, which this ledger has the turn for, unless the change was
        dropped meanwhile.
        """
        if self._unsent is not action:
            return
        match action:
            case e.ChooseReplacements():
                self._unsent = None
                self._choose(action)
            case e.ProposeMembers():
                self._unsent = None
                self.dispatch(e.MembersProposed(self._services.token()))
            case e.StoreMetadata() | e.ReadMetadata():
                self._storing = self._tasks.start(self._access_metadata(action))
                self._services.turns.count(self._storing)
            case _ as never:
                assert_never(never)

    def _choose(self, action: e.ChooseReplacements) -> None:
        chosen = self._replacements(action)
        if isinstance(chosen, Shortage):
            self._services.turns.count(self._tasks.start(self._choose_again(action)))
        else:
            self.dispatch(e.ReplacementsChosen(chosen, self._services.token()))

    async def _choose_again(self, action: e.ChooseReplacements) -> None:
        """Choose once more after a fresh read of the live bookies; nothing is confirmed meanwhile
        (5.2).
        """
        await self._services.placement.refresh()
        chosen = self._replacements(action)
        if isinstance(chosen, Shortage):
            needed, seen = chosen.needed, chosen.seen
            outcome: e.AppendEvent = e.ReplacementsMissing(
                needed, seen, chosen.excluded, chosen.why
            )
        else:
            outcome = e.ReplacementsChosen(chosen, self._services.token())
        self._make_in_turn(partial(self.dispatch, outcome))

    def _replacements(self, action: e.ChooseReplacements) -> Mapping[int, BookieId] | Shortage:
        return self._services.placement.most_replacements(
            self.protocol.metadata.quorum, action.ensemble, action.positions, action.excluded
        )

    def _fail(self, error: LedgerError) -> None:
        if self.failure is None:
            self.failure = error.as_end_of_writer()
        self.fail_pending(error)
        if not self.protocol.has_ended:
            self.dispatch(
                e.CloseRequested(self._services.token())
            )  # rule 5.5: the ledger is closed at its LAC
        elif not self.closed.done():
            self.closed.set_exception(error)
            self.closed.exception()  # an error that is not awaited is not logged

    def fail_pending(self, error: LedgerError) -> None:
        """Fail everything that waits, now or later, for a confirmation, for room or for full
        replication. The error is the one that ended the writer, if it failed before.
        """
        error = self.failure or error
        if tracing.is_on():
            self._trace(self.outbox.lap, error.message)
        self.confirmations.fail(error)
        self.first_replica_waiters.fail(error)
        self.window.fail(error.for_entry(NO_ENTRY, "not_written"))
        self.window.release(*self.outbox.clear())
        self.replication.fail(error)

    async def _access_metadata(self, action: e.StoreMetadata | e.ReadMetadata) -> None:
        """Store or read until the outcome is certain; the ledger store decides unknown outcomes
        (rule 1.3). A read begins after the FENCED answer that it checks (4.7).
        """
        ended: e.MetadataStored | e.MetadataConflicted | e.MetadataRefused
        await self._services.ledgers.until_connected()
        self._unsent = None
        try:
            if isinstance(action, e.StoreMetadata):
                ended = await self._update(action.metadata, action.expected)
            else:
                ended = await self._read_back()
        except Exception as error:  # noqa: BLE001 - the protocol waits for the outcome
            ended = e.MetadataRefused(_refusal(error, self.protocol.metadata.ledger_id))
        self.dispatch(ended)

    async def _update(
        self, metadata: LedgerMetadata, expected: Version
    ) -> e.MetadataStored | e.MetadataConflicted:
        try:
            version = await self._services.ledgers.compare_and_set(metadata, expected)
        except VersionConflictError:
            return await self._read_back()
        return e.MetadataStored(metadata, version)

    async def _read_back(self) -> e.MetadataConflicted:
        ledgers, ledger_id = self._services.ledgers, self.protocol.metadata.ledger_id
        while True:
            try:
                return e.MetadataConflicted(*await ledgers.get(ledger_id, fresh=True))
            except MetadataError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(READ_BACK_PAUSE_S)


_ChangeStep = e.ChooseReplacements | e.ProposeMembers | e.StoreMetadata | e.ReadMetadata


def _refusal(error: Exception, ledger_id: LedgerId) -> LedgerError:
    refusal: LedgerError
    match error:
        case NodeNotFoundError():
            text = "it was deleted while being written: continue in a new ledger"
            refusal = LedgerNotFoundError(text, ledger_id=ledger_id)
        case MetadataError():
            refusal = translate(error, ledger_id)
        case _:
            text = (
                f"its metadata could not be stored ({type(error).__name__}: {error}): recover it, "
                "and continue in a new ledger"
            )
            refusal = LedgerError(text, ledger_id=ledger_id)
    refusal.outcome, refusal.__cause__ = "unknown", error
    return refusal
