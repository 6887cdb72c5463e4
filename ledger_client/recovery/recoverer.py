"""Shell of the recovery of one ledger: sends, stores metadata, and reports the outcomes.

Leaves the decisions to `protocol/recovery.py`, and the connections to `ledger_client.bookies.pool`.

Invariants: events are handled one at a time and their actions performed in the order given; every
read fences (rule 7.3); a request to an unreachable bookie is repeated within its time, so that a
restart is not treated as a loss; nothing is left running when `recover` returns.

Source: protocol section 7, rules 4.2 and 9.14; api design, "Errors".
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final, Protocol, TypeVar, assert_never

from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.codec import Entries
from bookie.wire.messages import KNOWN, FenceWithoutKey, LacReply, ReadEntries, ReadLac, Status
from ledger_client.bookies.connection_calls import AddSink, BookieCallError, Refusals
from ledger_client.bookies.placement import Placement, Shortage
from ledger_client.bookies.pool import BookiePool, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from ledger_client.metadata_failures import translate
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.recovery import RecoveryProtocol
from ledger_client.protocol.recovery_events import FoundRun, Span
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import EntryReads, RangeReader, find_length_before
from ledger_client.reading.verified_entries import verify_entries
from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff, until_answered
from metadata.errors import (
    MetadataError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import (
    NO_ENTRY,
    UPDATE_TOKEN_BYTES,
    BookieId,
    EntryId,
    LedgerId,
    UpdateToken,
    Version,
)
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from quire.tracing import spans as tracing

SPARED_S: Final = 1.0
"""In-sync mode: time for which the fence of an unreachable member is requested again when the
fences of others are sufficient; each of those holds all confirmed entries.
"""
AnswerT = TypeVar("AnswerT")


StoredMetadata = tuple[LedgerMetadata, Version]


class RecoveredEntries:
    """Payloads that one recovery holds.

    Only verified entries are kept. A batch is built once and sent to every bookie as the same
    bytes. Entry digests depend only on id and payload, so rebuilt batches contain the same entries.
    """

    def __init__(self, keys: LedgerKeys) -> None:
        self._keys = keys
        self._held: dict[EntryId, BatchView] = {}
        """Each entry, and the first batch in which it came."""
        self._built: dict[EntryId, Buffer] = {}
        self._released = EntryId(0)

    def hold(self, batch: BatchView) -> FoundRun:
        """Keep a verified batch; return its entries as a run."""
        header = batch.header
        for entry_id in range(max(header.first_entry_id, self._released), header.last_entry_id + 1):
            self._held.setdefault(EntryId(entry_id), batch)
        length_before = None if header.is_slice else header.length_before
        return FoundRun(header.first_entry_id, batch.lengths, length_before)

    def batch(self, span: Span, lac: EntryId) -> Buffer:
        """Return the span's entries as one batch."""
        built = self._built.get(span.first_entry_id)
        if built is None:
            built = self._built[span.first_entry_id] = self._build(span, lac)
        return built

    def release(self, before: EntryId) -> None:
        """Drop all entries before one."""
        first = self._released or min(self._held, default=before)
        for entry_id in range(min(first, before), before):
            self._held.pop(EntryId(entry_id), None)
            self._built.pop(EntryId(entry_id), None)
        self._released = max(self._released, before)

    def _build(self, span: Span, lac: EntryId) -> Buffer:
        payloads: list[bytes] = []
        entry_id = span.first_entry_id
        while entry_id < span.next_entry_id:
            batch = self._held[entry_id]
            skip = entry_id - batch.header.first_entry_id
            stop = min(batch.header.count, span.next_entry_id - batch.header.first_entry_id)
            payloads += [bytes(view) for view in batch.payload_views()[skip:stop]]
            entry_id = EntryId(batch.header.first_entry_id + stop)
        keys = self._keys
        return build_batch(
            keys.ledger_id,
            span.first_entry_id,
            lac,
            span.length_before,
            payloads,
            keys.seed,
            keys.mac_key,
        )


class RecoveryBookies(EntryReads, Protocol):
    """Bookies, as a recovery uses them. `BookiePool` has these methods."""

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Send this key to each bookie at which the ledger is used, until `detach`."""

    def detach(self, ledger_id: LedgerId) -> None:
        """Undo one `attach`."""

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        """Fence the ledger, and return its LAC. Raises BookieCallError."""

    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        """Send one batch; see `BookiePool.add`."""


class KeylessBookies:
    """`RecoveryBookies` for a ledger of which no bookie is known to know the key.

    A ledger whose writer ended before its first entry was stored has no key on any bookie. Repair
    does not know its password, so it recovers such a ledger with requests that carry no key. A
    bookie that knows a key refuses them.

    Nothing is read or written, and no bookie is bound to a key. Only the answer of a durable fence
    is used as a negative. Entries that are stored without a key are UNKNOWN.
    """

    def __init__(self, pool: BookiePool) -> None:
        """`pool` has the credentials of repair."""
        self._pool = pool

    @property
    def refusals(self) -> Refusals:
        """Reasons of refusals, for errors."""
        return self._pool.refusals

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Do nothing: there is no key to send."""

    def detach(self, ledger_id: LedgerId) -> None:
        """Do nothing."""

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        """Fence the ledger without a key. Raises BookieCallError."""
        assert request.fence, "a recovery fences"
        return await self._fence(bookie_id, request.ledger_id, timeout_s)

    async def read_entries(
        self, bookie_id: BookieId, request: ReadEntries, *, timeout_s: float
    ) -> Entries:
        """Fence the ledger without a key; the answer is that for entry 0. Raises BookieCallError,
        also for other entries, and if entry 0 may be stored.
        """
        first = request.first_entry_id
        if first != 0:
            why = f"entry {first} cannot be read without the ledger's key"
            raise BookieCallError(bookie_id, why, status=Status.UNKNOWN)
        reply = await self._fence(bookie_id, request.ledger_id, timeout_s)
        if reply.status is Status.OK:
            why = "its entries cannot be read without the ledger's key"
            raise BookieCallError(bookie_id, why, status=Status.UNKNOWN)
        return Entries(reply.status, reply.lac, first, ())

    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        """Never called: nothing is read, so nothing is written back."""
        raise AssertionError("an entry was read without a key")

    async def _fence(self, bookie_id: BookieId, ledger_id: LedgerId, timeout_s: float) -> LacReply:
        request = FenceWithoutKey(ledger_id)
        return await self._pool.fence_without_key(bookie_id, request, timeout_s=timeout_s)


def timed_out(
    ledger_id: LedgerId,
    limit_s: float,
    newest_store: e.StoreInRecovery | e.StoreClosed | None,
    *,
    waits: bool,
) -> LedgerError:
    """Return the error of a recovery whose time is up, by the newest change of the metadata that it
    requested, and whether it `waits` for the metadata service.
    """
    match newest_store:
        case None:
            known = "the ledger was not changed"
        case e.StoreInRecovery() if waits:
            known = "the ledger may be in recovery now, which ends its writer"
        case e.StoreInRecovery():
            known = "the ledger stays in recovery, and its writer has ended"
        case e.StoreClosed():
            known = "the ledger is in recovery, its writer has ended, and it may be closed already"
        case _:
            assert_never(newest_store)
    if waits:
        text = f"the metadata service did not answer within the {limit_s} s of this recovery"
        return MetadataUnavailableError(
            f"{text}: {known}; recover it again",
            ledger_id=ledger_id,
            outcome="not_written" if newest_store is None else "unknown",
        )
    text = f"recovery did not end within {limit_s} s: {known}; try again"
    return QuorumTimeoutError(text, ledger_id=ledger_id)


def recovery_error(ledger_id: LedgerId, failure: e.RecoveryFailure) -> LedgerError:
    """Return the error for a failure."""
    match failure:
        case e.Undecided(entry_id, needed, missing, is_last_fragment_empty):
            where = "the ledger" if entry_id is None else f"entry {entry_id}"
            reasons = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in missing.items())
            return RecoveryUndecidedError(
                f"the end of the ledger is undecided: {where} needs {needed}; missing: "
                f"{reasons or '-'}. Nothing is lost: the ledger stays in recovery; start these "
                "bookies and recover it again",
                ledger_id=ledger_id,
                missing={str(b): reason for b, reason in missing.items()},
                entry_id=entry_id,
                is_last_fragment_empty=is_last_fragment_empty,
            )
        case e.PasswordRefused(bookie_id):
            text = f"bookie {bookie_id} refused the password: recover it with the correct one"
            return UnauthorizedError(text, ledger_id=ledger_id)
        case e.OtherBytesStored(bookie_id, entry_id):
            return EntryConflictError(
                f"from entry {entry_id} on, bookie {bookie_id} stores other bytes than were read "
                "elsewhere, with valid digests: two writers used the ledger. It stays in recovery; "
                f"compare the copies: `quire bookie compare {bookie_id} OTHER_ID {ledger_id}`",
                ledger_id=ledger_id,
                entry_id=entry_id,
            )
        case e.NoReplacement(needed, seen, excluded, why):
            reasons = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in excluded.items())
            return NotEnoughBookiesError(
                f"recovered entries cannot reach their ack quorum: {needed} more bookies are "
                f"needed and {seen} can be used ({reasons or 'none excluded'}){why}; start "
                "bookies and recover it again",
                needed=needed,
                seen=seen,
                excluded={str(b): reason for b, reason in excluded.items()},
                ledger_id=ledger_id,
                outcome="unknown",
            )
        case e.FragmentsChanged():
            text = (
                "the last fragment changed during recovery, which no rule allows: the ledger was "
                "not closed; recover it again"
            )
            return MetadataConflictError(text, ledger_id=ledger_id)
        case e.Deleted():
            return LedgerNotFoundError(
                "it does not exist: it was never created, or was deleted", ledger_id=ledger_id
            )
        case _:
            assert_never(failure)


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
        self._metadata_calls += 1
        try:
            read = partial(self._ledgers.get, self._ledger_id, fresh=True)
            return await until_answered(self._rng, read)
        finally:
            self._metadata_calls -= 1
