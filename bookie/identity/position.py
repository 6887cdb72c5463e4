"""Position keeper: records in the metadata service how far the log is durable, for the next start.

Leaves the node to `metadata.registry.positions`, and the conclusions of a start to
`bookie.identity.identity`.

Invariants: only a durable position is recorded; an unavailable metadata service stops only the
recording; one write runs at a time, and a write with an unknown outcome is repeated until it is
decided; after another process has written the node, no request is answered.

Source: protocol rules 1.3, 2.6, 2.7, 9.5, 10.5.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NoReturn, Protocol

from bookie.errors import DiskFullError, PositionTakenError
from metadata.backoff import Backoff
from metadata.errors import MetadataError, OutcomeUnknownError
from metadata.ids import BookieId, Version
from metadata.registry.positions import PositionRecord, PositionStore, StoredPosition
from metadata.store.interface import MetadataStore, SessionState
from quire.server.server_log import ServerLog

CHECK_INTERVAL_S: Final = 10.0
"""While the log does not grow: time between two checks whether another process has recorded, in
seconds.
"""
CLAIM_ATTEMPTS_MAX: Final = 20
ORDERLY_S_MAX: Final = 5.0
"""Maximum time in which a stopping bookie tries to record its last position, in seconds."""


@dataclass(frozen=True, slots=True)
class PositionClaim:
    """Identity of this process in the node."""

    bookie_id: BookieId
    incarnation: bytes
    files: tuple[str, ...]
    lock: str
    address: str = ""
    """Where it serves clients, as far as that is known."""
    location: str = ""


@dataclass(frozen=True, slots=True)
class PositionCallbacks:
    """Callbacks of a keeper."""

    taken: Callable[[PositionTakenError], None]
    """Called as soon as the keeper notices that another process has recorded, without an await."""
    recorded: Callable[[Version], None]
    """Called with each version that this keeper has recorded."""
    moved: Callable[[], Awaitable[bool]]
    """Awaited before anything is recorded in a node that is older than before, or that is again as
    it was before; returns whether the metadata service is as new as it was.
    """


class WrittenLog(Protocol):
    """Properties of a log that the keeper reads."""

    durable_lsn: int
    """All records below it are durable."""
    written_bytes: int
    """Number of bytes written to the log since it was opened."""


class PositionKeeper:
    """Keeper of one bookie's position: `claim` once, then `run` as a task, then
    `record_orderly`.
    """

    def __init__(
        self,
        store: MetadataStore,
        claim: PositionClaim,
        known: StoredPosition,
        written: WrittenLog,
        *,
        interval_s: float,
        rng: Random,
        log: ServerLog,
        callbacks: PositionCallbacks,
    ) -> None:
        """`known` is the position that the start found; `written` is the log."""
        self.version = known.version
        """Version of the node that was seen last."""
        self._store = store
        self._positions = PositionStore(store)
        self._claim = claim
        self._record = known.record
        self._written = written
        self._interval_s = interval_s
        self._rng = rng
        self._log = log
        self._callbacks = callbacks
        self._pending: PositionRecord | None = None
        self._left: StoredPosition | None = None
        """What this keeper knew before it found the node older."""
        self._wake = asyncio.Event()
        self._recorded_lsn = -1
        self._recorded_bytes = 0
        self._recorded_s = 0.0
        self._checked_s = 0.0
        self._is_failing = False

    @property
    def age_s(self) -> float:
        """Seconds since the durable end of the log was recorded; 0 while it is."""
        if self._written.durable_lsn == self._recorded_lsn:
            return 0.0
        return asyncio.get_running_loop().time() - self._recorded_s

    @property
    def unrecorded_bytes(self) -> int:
        """Bytes of log written since the last record."""
        return self._written.written_bytes - self._recorded_bytes

    async def claim(self) -> None:
        """Record that this process, with its files, is the bookie from now on.

        Raises PositionTakenError when another process recorded first, MetadataError.
        """
        backoff = Backoff(self._rng)
        for _ in range(CLAIM_ATTEMPTS_MAX):
            if await self._put():
                return
            await asyncio.sleep(backoff.next_s())
        raise MetadataError(
            f"the position of {self._claim.bookie_id} could not be recorded in "
            f"{CLAIM_ATTEMPTS_MAX} attempts; start again when the metadata service answers"
        )

    async def run(self) -> None:
        """Record until cancelled. Raises PositionTakenError."""
        cancel = self._store.on_session(self._note_session)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
                await self._keep_current()
        finally:
            cancel()

    async def record_orderly(self, stopped_ms: int) -> bool:
        """Record the final position of a log that was sealed, with the time in ms since 1970;
        return whether that succeeded in ORDERLY_S_MAX. It is also the announcement of the stop for
        repair (rule 9.5).
        """
        with contextlib.suppress(TimeoutError, MetadataError, PositionTakenError):
            async with asyncio.timeout(ORDERLY_S_MAX):
                backoff = Backoff(self._rng)
                while self._record is None or not self._record.is_orderly:
                    if not await self._put(stopped_ms):
                        await asyncio.sleep(backoff.next_s())
                return True
        return False

    def _note_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:  # a resumed machine notices here that it was replaced
            self._wake.set()

    async def _keep_current(self) -> None:
        now_s = asyncio.get_running_loop().time()
        is_woken = self._wake.is_set()
        self._wake.clear()
        try:
            if self._pending is not None or self._written.durable_lsn != self._recorded_lsn:
                await self._put()
            elif is_woken or now_s - self._checked_s >= CHECK_INTERVAL_S:
                await self._check_node()
            self._note_success()
        except (MetadataError, DiskFullError) as error:
            if not self._is_failing:
                try_next = "remove the cause: the bookie repeats the write by itself"
                self._log.warning("position not recorded", reason=str(error), try_next=try_next)
            self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            self._log.info("position recorded again")
        self._is_failing = False

    async def _put(self, stopped_ms: int | None = None) -> bool:
        """Try to record the end of the log, after any undecided record: the end for good if
        `stopped_ms` is given. Return whether the end was recorded.
        """
        end_lsn, end_bytes = self._written.durable_lsn, self._written.written_bytes
        claim, now_s = self._claim, asyncio.get_running_loop().time()
        wanted = PositionRecord(
            incarnation=claim.incarnation,
            end_lsn=end_lsn,
            files=claim.files,
            lock=claim.lock,
            stopped_ms=stopped_ms,
            address=claim.address,
            location=claim.location,
        )
        record = self._pending or wanted
        self._pending = record
        try:
            version = await self._positions.put(claim.bookie_id, record, self.version)
        except OutcomeUnknownError:
            version = None
        if version is not None:
            self._note_recorded(record, version)
        else:
            await self._check_node()
        if self._record != wanted:
            return False
        self._recorded_lsn, self._recorded_bytes, self._recorded_s = end_lsn, end_bytes, now_s
        return True

    async def _check_node(self) -> None:
        """Compare the node with the known state, and decide an undecided write."""
        stored = await self._positions.get(self._claim.bookie_id)
        self._checked_s = asyncio.get_running_loop().time()
        if stored.version == self.version and stored.record == self._record:
            return  # an undecided write may still be applied: it is repeated
        if stored == StoredPosition(self._pending, Version(self.version + 1)):
            assert stored.record is not None
            self._note_recorded(stored.record, stored.version)
        elif stored == self._left or stored.version < self.version:
            is_newest = await self._callbacks.moved()
            if stored == self._left:
                self._left = None
            elif is_newest:  # this process compared its files with an older service only
                self._end_as_taken()
            else:
                self._left = self._left or StoredPosition(self._record, self.version)
            self._record, self.version = stored.record, stored.version
            self._pending = None
        else:
            self._end_as_taken()

    def _end_as_taken(self) -> NoReturn:
        taken = PositionTakenError(self._claim.bookie_id)
        self._callbacks.taken(taken)
        raise taken

    def _note_recorded(self, record: PositionRecord, version: Version) -> None:
        self._record, self.version = record, version
        self._callbacks.recorded(version)
        self._pending = None
        self._checked_s = asyncio.get_running_loop().time()
