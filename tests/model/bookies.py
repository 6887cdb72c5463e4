"""Model of a bookie: one tuple that answers requests with the production storage's decisions.

Log, index and disk are left out: queued and stored entries are small lists here.
`BookieStorage.add`, `fence` and `read`, `Commits`, `OverlappingAdds._decide`, `ReplicaState` and
its functions, and the replay's `_Applier` are the code that runs. A request that waits for a sync
is repeated after it, where its coroutine would continue: each of them reads the state again.

Source: protocol rules 2.4, 4.3, 7.2; storage design, "One log".
"""

from collections.abc import Coroutine, Generator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from bookie.index import replica_state
from bookie.index.index_runs import Lookup
from bookie.index.replica_state import ReplicaState
from bookie.log import records
from bookie.log.log import LogItem
from bookie.log.records import ADDS, Record, RecordHeader, RecordKind
from bookie.queued_adds import QueuedAdds
from bookie.storage.admission import Admission
from bookie.storage.answers import ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.commits import Commits
from bookie.storage.ledger_reads import LedgerReads
from bookie.storage.ledgers import Ledgers
from bookie.storage.opening import _Applier
from bookie.storage.overlapping import OverlappingAdd, OverlappingAdds, QueuedAdd
from bookie.storage.reading import BadRanges
from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, EntryId
from quire.server.overriding import override
from tests.model.words import Answer, Request, entry, length_of, size_of
from tests.scenarios.words import LEDGER

NOT_HELD = -2
"""In place of the LAC of an entry's batch."""


class BookieState(NamedTuple):
    """One bookie: its stored entries, its knowledge and its queue."""

    held: tuple[int, ...]
    """For each entry: the LAC of the durable batch, or NOT_HELD."""
    is_known: bool = False
    fenced: bool = False
    is_fence_durable: bool = False
    lac: int = NO_ENTRY
    durable_lac: int = NO_ENTRY
    highest: int = NO_ENTRY
    accepted_highest: int = NO_ENTRY
    queue: tuple[tuple[Request, tuple[tuple[int, int], ...] | None] | None, ...] = ()
    """Adds with the entries to index (None: all), and fences (None)."""
    waiting: tuple[Request, ...] = ()
    """Requests that continue after the next sync."""
    is_in_limbo: bool = False
    """Whether it may have lost entries and fences (2.4)."""


class _Wait:
    """Place where a coroutine waits."""

    def __await__(self) -> Generator[None, None, None]:
        yield None


class _Reply:
    """Callback `done`: it keeps the answer together with the request."""

    def __init__(self, request: Request, answers: list[Answer]) -> None:
        self.request = request
        self._answers = answers

    def __call__(self, status: Status) -> None:
        self._answers.append(Answer(self.request, status, 0, is_fenced=False))


class _Log:
    """Queue of the log."""

    def __init__(self) -> None:
        self.failure = None
        self.items: list[LogItem] = []
        self.is_synced = False

    def append(self, kind: int, body: Buffer, context: object) -> None:
        self.items.append(LogItem(kind, body, context))

    def unanswered(self) -> list[LogItem]:
        return self.items

    async def barrier(self) -> None:
        if not self.is_synced:
            await _Wait()


class _Commits(Commits):
    """Control records are durable only after a sync."""

    @override
    async def append(self, kind: RecordKind, body: bytes) -> Status:
        log = cast("_Log", self.log)
        if not log.is_synced:
            log.append(kind, body, lambda _status: None)
            await _Wait()
        return Status.OK


class _Overlapping(OverlappingAdds):
    """Compares at once, or after the next sync."""

    def __init__(self, parts: "_Parts") -> None:
        self._parts = parts
        self._log = cast("Any", parts.log)
        self._reader = cast("Any", parts)
        self._index = cast("Any", parts)

    @override
    def add(self, add: OverlappingAdd) -> None:
        self._parts.run(self._decide(add), cast("_Reply", add.done).request)


class _Parts:
    """Storage made from one tuple; it returns the tuple for its later state."""

    def __init__(self, bookie: BookieState, *, keeps_lacs: bool) -> None:
        self.held = list(bookie.held)
        self.durable_lac = bookie.durable_lac
        self.answers: list[Answer] = []
        self.bad = BadRanges()
        self.waiting = list(bookie.waiting)
        self.log = _Log()
        self.segments: Any = SimpleNamespace(by_number={0: SimpleNamespace(live_bytes=0)})
        self._keeps_lacs = keeps_lacs
        self._lac_of_batch = int(NO_ENTRY)
        ledgers = self._ledgers = Ledgers(hot_max=20_000)
        parts = cast("Any", self)
        log = cast("Any", self.log)
        self.commits = _Commits(
            ledgers,
            parts,
            cast("Any", self.segments),
            parts,
            self.bad,
            lambda _: log,
            on_disk_full=lambda: None,
            on_answered=lambda: None,
        )
        storage: Any = BookieStorage.__new__(BookieStorage)
        storage._ledgers, storage._log, storage._commits = ledgers, self.log, self.commits
        storage._reader = self
        writability: Any = SimpleNamespace(
            is_writable=True,
            may_have_lost_fences=bookie.is_in_limbo,
            takes_recovery_adds=True,
        )
        cold = storage._cold = ColdLedgers(
            ledgers, parts, QueuedAdds(accepted_bytes_max=1), lambda: None, None
        )
        admission = storage._admission = Admission(
            ledgers, cold, cast("Any", self.log), writability
        )
        storage.reads = LedgerReads(
            ledgers, cold, admission, parts, parts, parts, cast("Any", self.log)
        )
        storage._overlapping = _Overlapping(self)
        self.storage: BookieStorage = storage
        self.is_limbo = bookie.is_in_limbo
        if bookie.is_known:
            self._load(bookie)

    def _load(self, bookie: BookieState) -> None:
        state = self._ledgers.get_or_make(LEDGER)
        state.fenced, state.is_fence_durable = bookie.fenced, bookie.is_fence_durable
        state.lac, state.highest = bookie.lac, bookie.highest
        state.accepted_highest = bookie.accepted_highest
        for queued in bookie.queue:
            if queued is None:
                self.log.append(RecordKind.FENCE, b"", lambda _status: None)
                continue
            request, gaps = queued
            reply = _Reply(request, self.answers)
            add = QueuedAdd(state, batch_of(request), None if gaps is None else [*gaps], reply)
            self.log.append(ADDS, b"", add)
            state.queued_count += 1

    def state(self) -> BookieState:
        """Return the tuple of the current state."""
        state = self._ledgers.states.get(LEDGER)
        queue: list[tuple[Request, tuple[tuple[int, int], ...] | None] | None] = []
        for item in self.log.items:
            add = item.context
            if isinstance(add, QueuedAdd):
                gaps = None if add.gaps is None else tuple(add.gaps)
                queue.append((cast("_Reply", add.done).request, gaps))
            else:
                queue.append(None)
        held = tuple(self.held)
        if state is None:
            return BookieState(held, is_in_limbo=self.is_limbo)
        return BookieState(
            held,
            is_known=True,
            fenced=state.fenced,
            is_fence_durable=state.is_fence_durable,
            lac=state.lac,
            durable_lac=self.durable_lac,
            highest=state.highest,
            accepted_highest=state.accepted_highest,
            queue=tuple(queue),
            waiting=tuple(self.waiting),
            is_in_limbo=self.is_limbo,
        )

    # -- calls of the storage to its index, its reader and its recent entries ---------------------

    def insert(self, _ledger: int, first: int, last: int, *_where: int) -> None:
        for number in range(first, last + 1):
            self.held[number] = self._lac_of_batch if self._keeps_lacs else NO_ENTRY

    def put(self, batch: BatchView) -> None:
        """Keep nothing: every read is from the index."""

    async def look_up(self, _ledger: int, first: int, last: int, *_limits: int) -> Lookup:
        runs = [(number, number, 0, 0) for number in range(first, last + 1) if self._holds(number)]
        return Lookup(runs, last, is_unproven=False)

    async def read(self, state: ReplicaState, first: int, last: int, _bytes: int) -> ReadResult:
        stop, batches = first, []
        while stop <= last and self._holds(stop):
            batches.append(bytes_of(stop, 1, self.held[stop]))
            stop += 1
        negative = replica_state.negative(state, is_limbo=self.is_limbo)
        status = Status.OK if stop > last else negative
        return ReadResult(status, EntryId(state.lac), entry(stop), tuple(batches))

    async def read_or_raise(
        self, state: ReplicaState, first: int, last: int, bytes_max: int
    ) -> ReadResult:
        return await self.read(state, first, last, bytes_max)

    def _holds(self, entry_id: int) -> bool:
        return entry_id < len(self.held) and self.held[entry_id] != NOT_HELD

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Pass a request to the storage."""
        if request.kind in ("add", "back"):
            batch, is_recovery = batch_of(request), request.kind == "back"
            done = _Reply(request, self.answers)
            self.storage.add(batch, recovery=is_recovery, master_key=None, done=done)
        else:
            self.run(self._answer(request), request)

    def run(self, call: Coroutine[object, None, None], request: Request) -> None:
        """Run to the end, or to the first wait: then the request is repeated later."""
        try:
            call.send(None)
        except StopIteration:
            return
        call.close()
        self.waiting.append(request)

    async def _answer(self, request: Request) -> None:
        """Answer as `LedgerRequests` does."""
        snapshot = await self.storage.fence(LEDGER, None)
        status, value = snapshot.status, int(snapshot.lac)
        if request.kind == "read" and status is Status.OK:
            first, last = entry(request.first), entry(request.last)
            found = await self.storage.reads.read(
                LEDGER, first, last, 1 << 20, None, after_fence=True
            )
            status, value = found.status, int(found.next_entry_id)
        elif request.kind == "read":
            value = request.first
        self.answers.append(Answer(request, status, value, snapshot.fenced))

    def sync(self) -> None:
        """Make queued records durable, answer them, and continue the waiting requests."""
        group, self.log.items = self.log.items, []
        for item in group:
            item.lsn = 0
        for item in group:
            if isinstance(item.context, QueuedAdd):
                self._lac_of_batch = int(item.context.batch.header.lac)
                self.durable_lac = max(self.durable_lac, self._lac_of_batch)
            self.commits.on_group([item], None)
        waiting, self.waiting = self.waiting, []
        self.log.is_synced = True
        for request in waiting:
            self.ask(request)
        self.log.is_synced = False

    def replay(self, bookie: BookieState) -> None:
        """Start again from the durable records."""
        applier = _Applier(self._ledgers, cast("Any", self), self.segments)
        for each, lac in enumerate(bookie.held):
            if lac != NOT_HELD:
                self._lac_of_batch = lac
                applier.apply(_record(ADDS, bytes_of(each, 1, NO_ENTRY)))
        if bookie.durable_lac != NO_ENTRY:
            lac_record = records.encode_lac(LEDGER, entry(bookie.durable_lac))
            applier.apply(_record(RecordKind.EXPLICIT_LAC, lac_record))
        is_fence_queued = any(queued is None for queued in bookie.queue)
        if bookie.is_fence_durable and not is_fence_queued:
            applier.apply(_record(RecordKind.FENCE, records.encode_ledger(LEDGER)))


class Bookies:
    """All states of bookies that occur, numbered, and the results of requests in each."""

    def __init__(self, entries: int, *, keeps_lacs: bool) -> None:
        self._keeps_lacs = keeps_lacs
        self.states: list[BookieState] = []
        self._numbers: dict[BookieState, int] = {}
        self._known: dict[tuple[int, Request | str, bool], tuple[int, tuple[Answer, ...]]] = {}
        self.empty = self._number(BookieState((NOT_HELD,) * entries))

    def ask(
        self, number: int, request: Request, *, is_slow: bool
    ) -> tuple[int, tuple[Answer, ...]]:
        """Return the state after a request, and the answers; a bookie that is not slow syncs at
        once.
        """
        key = number, request, is_slow
        found = self._known.get(key)
        if found is None:
            parts = self._parts(number)
            parts.ask(request)
            while not is_slow and (parts.log.items or parts.waiting):
                parts.sync()
            found = self._known[key] = self._number(parts.state()), tuple(parts.answers)
        return found

    def sync(self, number: int) -> tuple[int, tuple[Answer, ...]]:
        """Return the state after a sync, and the answers."""
        key = number, "sync", True
        found = self._known.get(key)
        if found is None:
            parts = self._parts(number)
            parts.sync()
            found = self._known[key] = self._number(parts.state()), tuple(parts.answers)
        return found

    def restart(self, number: int) -> tuple[int, tuple[Request, ...]]:
        """Return the state after a crash and a start, and the requests that got no answer."""
        before = self.states[number]
        parts = _Parts(BookieState((NOT_HELD,) * len(before.held)), keeps_lacs=self._keeps_lacs)
        parts.replay(before)
        parts.durable_lac = before.durable_lac
        lost = [queued[0] for queued in before.queue if queued is not None]
        return self._number(parts.state()), (*lost, *before.waiting)

    def damage(self, number: int) -> int:
        """Return the state after a restart with damage in the log; what is damaged here is other
        data.
        """
        before = self.states[number]
        return self._number(before._replace(is_known=True, fenced=True, is_fence_durable=True))

    def old_copy(self, number: int) -> int | None:
        """Return the state after a start on a copy from before the ledger; None if the bookie holds
        an entry, or has taken one.
        """
        before = self.states[number]
        if before.accepted_highest != NO_ENTRY or before.queue or before.waiting:
            return None
        return self._number(BookieState((NOT_HELD,) * len(before.held), is_in_limbo=True))

    def _parts(self, number: int) -> _Parts:
        return _Parts(self.states[number], keeps_lacs=self._keeps_lacs)

    def _number(self, state: BookieState) -> int:
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self.states)
            self.states.append(state)
        return found


def bytes_of(first: int, count: int, lac: int) -> bytearray:
    """Return the batch of entries that every client sends."""
    payloads = [bytes(size_of(number)) for number in range(first, first + count)]
    return build_batch(LEDGER, entry(first), entry(lac), length_of(first), payloads, 0)


def batch_of(request: Request) -> BatchView:
    """Return the contents of an add."""
    count = request.last - request.first + 1
    return BatchView(bytes_of(request.first, count, request.lac))


def _record(kind: int, body: Buffer) -> Record:
    return Record(RecordHeader(RecordKind(kind), len(body), 0, 0, 0), memoryview(body))
