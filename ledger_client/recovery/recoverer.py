"""Shell of the recovery of one ledger: sends, stores metadata, and reports the outcomes.

Leaves the decisions to `protocol/recovery.py`, payloads to `recovered_entries.py`, and the errors
to `recovery_errors.py`.

Invariants: events are handled one at a time and their actions performed in the order given; every
read fences (rule 7.3); a request to an unreachable bookie is repeated within its time, so that a
restart is not treated as a loss; nothing is left running when `recover` returns.

Source: protocol section 7.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar, assert_never

from bookie.wire.messages import ReadEntries, ReadLac, Status
from ledger_client.bookies.placement import Placement, Shortage
from ledger_client.bookies.pool import BookieCallError, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    LedgerError,
    LedgerNotFoundError,
    UnauthorizedError,
)
from ledger_client.metadata_failures import translate
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.known_answers import KNOWN
from ledger_client.protocol.recovery import RecoveryProtocol
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.length_search import find_length_before
from ledger_client.reading.range_reader import RangeReader
from ledger_client.reading.verified_entries import verify_entries
from ledger_client.recovery.recovered_entries import RecoveredEntries
from ledger_client.recovery.recovery_bookies import RecoveryBookies
from ledger_client.recovery.recovery_errors import recovery_error, timed_out
from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeNotFoundError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import NO_ENTRY, UPDATE_TOKEN_BYTES, BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from quire.tracing import spans as tracing

SPARED_S: Final = 1.0
"""In-sync mode: time for which the fence of an unreachable member is requested again when the
fences of others are sufficient; each of those holds all confirmed entries.
"""

AnswerT = TypeVar("AnswerT")
StoredMetadata = tuple[LedgerMetadata, Version]


class Recoverer:
    """One recovery of one ledger. An `AddSink` of the pool. For one use only."""

    def __init__(
        self,
        *,
        metadata: LedgerMetadata,
        version: Version,
        keys: LedgerKeys,
        pool: RecoveryBookies,
        placement: Placement,
        ledgers: LedgerStore,
        config: ClientConfig,
        rng: Random,
    ) -> None:
        self._start = e.MetadataRead(metadata, version)
        self._protocol = RecoveryProtocol()
        self._entries = RecoveredEntries(keys)
        self._keys = keys
        self._pool = pool
        self._placement = placement
        self._ledgers = ledgers
        self._config = config
        self._rng = rng
        self._ledger_id = metadata.ledger_id
        self._quorum = metadata.quorum
        self._events: deque[e.RecoveryEvent] = deque()
        self._is_dispatching = False
        self._tasks = BackgroundTasks()
        self._result: asyncio.Future[StoredMetadata] = asyncio.get_running_loop().create_future()
        self._metadata_calls = 0
        self._newest_store: e.StoreInRecovery | e.StoreClosed | None = None
        """The newest requested change of the metadata, applied or not."""
        self._has_stored = False
        self._unanswered: dict[BookieId, dict[EntryId, None]] = {}
        """Write-backs that each bookie has not answered."""
        self._patience: dict[BookieId, asyncio.TimerHandle] = {}
        """Timers of the bookies in `_unanswered`; each answer starts one again."""

    async def recover(self, *, timeout_s: float | None = None) -> StoredMetadata:
        """Fence the ledger, find its end, and close it; return the stored metadata.

        Raises RecoveryUndecidedError, NotEnoughBookiesError, LedgerNotFoundError,
        UnauthorizedError, EntryConflictError, MetadataConflictError, MetadataTooLargeError, and
        QuorumTimeoutError or MetadataUnavailableError when its time is up. The ledger then stays as
        stored; a new recovery continues from there.
        """
        if self._keys.lacks_mac_key:
            raise UnauthorizedError(
                "its batches have MACs, which cannot be made without its password: recover it with "
                f"the password: `quire ledger recover {self._ledger_id} --password-file FILE`",
                ledger_id=self._ledger_id,
            )
        limit_s = self._config.call_timeout_s if timeout_s is None else timeout_s
        attributes = {tracing.LEDGER: self._ledger_id}
        with tracing.span("ledger.recover", tracing.SpanKind.CLIENT, attributes):
            return await self._recover(limit_s)

    async def _recover(self, limit_s: float) -> StoredMetadata:
        self._pool.attach(self._ledger_id, self._keys.master_key)
        try:
            async with asyncio.timeout(limit_s):
                self._dispatch(self._start)
                return await self._result
        except TimeoutError:
            waits = self._metadata_calls > 0
            raise timed_out(self._ledger_id, limit_s, self._newest_store, waits=waits) from None
        finally:
            self._result.cancel()
            for timer in self._patience.values():
                timer.cancel()
            await self._tasks.aclose()
            self._pool.detach(self._ledger_id)

    # -- reports of the pool -----------------------------------------------------------------------

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Receive a bookie's answer to a write-back."""
        self._note_answered(bookie_id, first_entry_id)
        if status is Status.OK:
            self._dispatch(e.SpanStored(bookie_id, first_entry_id))
        else:
            reason = f"answered {status.name}"
            self._dispatch(e.SpanRefused(bookie_id, first_entry_id, status, reason))

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Receive the report that a write-back may or may not be stored."""
        self._note_answered(bookie_id, first_entry_id)
        why = f"{failure.value}: {reason}"
        self._dispatch(e.SpanRefused(bookie_id, first_entry_id, None, why))

    # -- events and actions ----------------------------------------------------------------------

    def _dispatch(self, event: e.RecoveryEvent) -> None:
        """Handle an event, and the events that its actions cause."""
        self._events.append(event)
        if self._is_dispatching:
            return
        self._is_dispatching = True
        try:
            while self._events and not self._result.done():
                for action in self._protocol.handle(self._events.popleft()):
                    self._perform(action)
        finally:
            self._is_dispatching = False

    def _perform(self, action: e.RecoveryAction) -> None:
        match action:
            case e.Finish(metadata, version):
                self._result.set_result((metadata, version))
            case e.Fail(failure):
                error = recovery_error(self._ledger_id, failure)
                self._fail(self._pool.refusals.explained(error))
            case e.WriteBack(bookie_id, span, lac):
                self._write_back(bookie_id, span, lac)
            case e.ReleaseEntries(before):
                self._entries.release(before)
            case e.ChooseReplacements():
                self._choose(action)
            case e.Fence(bookie_id):
                self._tasks.start(self._fence(bookie_id))
            case e.ReadRange(bookie_id, first, last):
                self._tasks.start(self._read(bookie_id, first, last))
            case e.FindLength(entry_id):
                self._tasks.start(self._find_length(entry_id))
            case e.StoreInRecovery() | e.StoreClosed():
                self._tasks.start(self._store(action))
            case e.ReadMetadata():
                self._tasks.start(self._read_metadata())
            case _:
                assert_never(action)

    def _fail(self, error: LedgerError) -> None:
        if not self._result.done():
            self._result.set_exception(error)

    # -- bookies -----------------------------------------------------------------------------------

    async def _fence(self, bookie_id: BookieId) -> None:
        request = ReadLac(self._ledger_id, fence=True)
        timeout_s = self._config.read_timeout_s
        try:
            reply = await self._persist(
                lambda left_s: self._pool.read_lac(bookie_id, request, timeout_s=left_s),
                timeout_s,
                lambda: self._protocol.has_sufficient_fences,
            )
        except BookieCallError as error:
            if error.status is None:
                self._dispatch(e.FenceFailed(bookie_id, str(error)))
            else:
                refused = e.FenceAnswered(
                    bookie_id, error.status, NO_ENTRY, fenced=False, reason=error.reason
                )
                self._dispatch(refused)
            return
        self._dispatch(e.FenceAnswered(bookie_id, reply.status, reply.lac, reply.fenced))

    async def _read(self, bookie_id: BookieId, first: EntryId, last: EntryId) -> None:
        config = self._config
        request = ReadEntries(self._ledger_id, first, last, config.read_bytes_max, fence=True)
        try:
            answer = await self._persist(
                lambda left_s: self._pool.read_entries(bookie_id, request, timeout_s=left_s),
                config.read_timeout_s,
            )
        except BookieCallError as error:
            if error.status is None or error.status in KNOWN:  # refused: it did not even fence
                self._dispatch(e.RangeFailed(bookie_id, first, str(error)))
            else:
                refused = e.RangeAnswered(bookie_id, first, (), first, error.status, str(error))
                self._dispatch(refused)
            return
        good = verify_entries(answer, self._keys, first, last)
        runs = tuple(self._entries.hold(batch) for batch in good.batches)
        following, status, reason = good.next_entry_id, good.status, good.reason
        self._dispatch(e.RangeAnswered(bookie_id, first, runs, following, status, reason))

    async def _persist(
        self,
        call: Callable[[float], Awaitable[AnswerT]],
        timeout_s: float,
        is_spared: Callable[[], bool] = lambda: False,
    ) -> AnswerT:
        """Repeat a call while its bookie cannot be reached and time is left; for at most SPARED_S
        if the bookie is not needed.
        """
        loop = asyncio.get_running_loop()
        spared_at = loop.time() + SPARED_S
        deadline = loop.time() + timeout_s
        backoff = Backoff(self._rng)
        while True:
            try:
                return await call(max(deadline - loop.time(), 0.001))
            except BookieCallError as error:
                pause_s = backoff.next_s()
                is_final = error.status is not None or error.failure is CallFailure.CLOSED
                again_at = loop.time() + pause_s
                is_late = again_at >= deadline or (again_at >= spared_at and is_spared())
                if is_final or is_late:
                    raise
            await asyncio.sleep(pause_s)

    def _write_back(self, bookie_id: BookieId, span: e.Span, lac: EntryId) -> None:
        batch = self._entries.batch(span, lac)
        first = span.first_entry_id
        self._pool.add(bookie_id, self._ledger_id, batch, first, recovery=True, sink=self)
        self._unanswered.setdefault(bookie_id, {})[first] = None
        if bookie_id not in self._patience:
            self._start_patience(bookie_id)

    def _start_patience(self, bookie_id: BookieId) -> None:
        self._patience[bookie_id] = asyncio.get_running_loop().call_later(
            self._config.suspect_after_max_s, self._fail_silent_bookie, bookie_id
        )

    def _note_answered(self, bookie_id: BookieId, first: EntryId) -> None:
        """Wait longer for a bookie that answers one write-back after the other."""
        unanswered = self._unanswered.get(bookie_id, {})
        if first not in unanswered:
            return  # it was silent for too long before
        del unanswered[first]
        self._patience.pop(bookie_id).cancel()
        if unanswered:
            self._start_patience(bookie_id)

    def _fail_silent_bookie(self, bookie_id: BookieId) -> None:
        """Treat a silent bookie as failed; its answers still count if no bookie replaces it."""
        del self._patience[bookie_id]
        for first in self._unanswered.pop(bookie_id):
            self._dispatch(e.SpanRefused(bookie_id, first, None, "silent for too long"))

    def _choose(self, action: e.ChooseReplacements) -> None:
        chosen = self._placement.most_replacements(
            self._quorum, action.ensemble, action.positions, action.failed
        )
        if isinstance(chosen, Shortage):
            needed, seen = chosen.needed, chosen.seen
            self._dispatch(e.ReplacementsMissing(needed, seen, chosen.excluded, chosen.why))
        else:
            self._dispatch(e.ReplacementsChosen(chosen))

    async def _find_length(self, entry_id: EntryId) -> None:
        ledger = FollowedLedger(self._start.metadata, self._start.version, self._ledgers, self._rng)
        ranges = RangeReader(ledger, self._keys, self._pool, self._config, self._rng)
        try:
            length = await find_length_before(ranges, entry_id, self._config.read_timeout_s)
        except LedgerNotFoundError:
            self._dispatch(e.LedgerGone())
        except LedgerError as error:
            replicas = ranges.replicas(EntryId(entry_id - 1))
            self._dispatch(e.LengthMissing(dict.fromkeys(replicas, error.message)))
        else:
            self._dispatch(e.LengthFound(length))

    # -- metadata ----------------------------------------------------------------------------------

    async def _store(self, action: e.StoreInRecovery | e.StoreClosed) -> None:
        token = UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))
        if isinstance(action, e.StoreInRecovery):
            changed = action.on.with_recovery_begun(token)
        else:
            changed = action.on.with_recovered(
                action.recovered, action.last_entry_id, action.length, token
            )
        self._metadata_calls += 1
        self._newest_store = action
        try:
            version = await self._ledgers.compare_and_set(changed, action.version)
        except VersionConflictError:
            await self._read_metadata()
        except NodeNotFoundError:
            self._dispatch(e.LedgerGone())
        except MetadataError as error:
            self._fail_of_metadata(error)
        else:
            self._has_stored = True
            self._dispatch(e.MetadataStored(changed, version))
        finally:
            self._metadata_calls -= 1

    async def _read_metadata(self) -> None:
        try:
            metadata, version = await self._metadata_now()
        except NodeNotFoundError:
            self._dispatch(e.LedgerGone())
        except MetadataError as error:
            self._fail_of_metadata(error)
        else:
            self._dispatch(e.MetadataRead(metadata, version))

    def _fail_of_metadata(self, error: MetadataError) -> None:
        failure = translate(error, self._ledger_id)
        if self._has_stored:
            failure.outcome = "unknown"  # of this recovery, not of the request that failed
        self._fail(failure)

    async def _metadata_now(self) -> StoredMetadata:
        """Read the metadata; repeat while the store is not available."""
        backoff = Backoff(self._rng)
        self._metadata_calls += 1
        try:
            while True:
                try:
                    return await self._ledgers.get(self._ledger_id, fresh=True)
                except StoreUnavailableError:
                    await asyncio.sleep(backoff.next_s())
        finally:
            self._metadata_calls -= 1
