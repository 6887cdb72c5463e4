"""Open-loop load: appends on a schedule that is fixed before the run, and records when each append
was acknowledged.

Invariants: an append is due at its time also while the cluster stands still, so a stall counts for
every append that it held up (no coordinated omission), and is sent as soon as possible; a failed
append is repeated in a new ledger with its first number and due time; so no append that was due is
left out. The schedule is pure: its numbers ascend from 0 with the times.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final

from ledger_client import (
    BackpressureError,
    LedgerClient,
    LedgerError,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    Quorum,
    QuorumTimeoutError,
)
from metadata.cancelling import cancel_and_wait
from quire.bench.journal import Ack, JournalWriter

RETRY_S: Final = 0.005
REOPEN_S: Final = 0.1
"""Time to wait after a ledger could not be created, or acknowledged nothing, in seconds. An
application also waits instead of retrying at once."""
CREATE_TIMEOUT_S: Final = 3.0
PROBE_EVERY: Final = 20
"""One in PROBE_EVERY acknowledged appends is followed until it is on its complete write quorum."""
ZONES_EVERY_S: Final = 0.25
NUMBER_BYTES: Final = 8


class OpenLoad:
    """Appends of one writing process, to as many ledgers as needed."""

    def __init__(
        self, client: LedgerClient, quorum: Quorum, journal: JournalWriter, entry_bytes: int
    ) -> None:
        self._client = client
        self._quorum = quorum
        self._journal = journal
        self._filling = bytes(max(0, entry_bytes - NUMBER_BYTES))
        self._writer: LedgerWriter | None = None
        self._waiting: list[tuple[int, float]] = []
        self._unanswered = 0
        self._late_s_max = 0.0
        self._has_acked = False
        self._failed_appends = 0
        self._refused_count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None

    @property
    def writer(self) -> LedgerWriter | None:
        """Writer of the current ledger; None between two ledgers."""
        return self._writer

    async def open(self) -> LedgerWriter:
        """Create the first ledger. Raises LedgerError."""
        self._writer = await self._client.create_ledger(self._quorum)
        self._note_opened(self._writer)
        return self._writer

    async def run(
        self,
        due: Sequence[tuple[int, float]],
        end: float,
        drain_s: float,
        zones_at: Sequence[float],
    ) -> None:
        """Append each (number, due moment), ascending; return once all are acknowledged, or
        `drain_s` after `end`.
        """
        self._note_counters("load_started")
        zones = asyncio.ensure_future(self._watch_zones(zones_at))
        at, begun, deadline = 0, monotonic(), end + drain_s
        try:
            while at < len(due) or self._waiting or self._unanswered:
                now = monotonic()
                if now >= deadline:
                    break
                while at < len(due) and due[at][1] <= now:
                    heapq.heappush(self._waiting, due[at])
                    self._late_s_max = max(self._late_s_max, now - max(begun, due[at][1]))
                    at += 1
                blocked = self._send()
                rest = due[at][1] - monotonic() if at < len(due) else RETRY_S
                await asyncio.sleep(max(0.0, min(rest, RETRY_S) if blocked else rest))
        finally:
            await cancel_and_wait(zones)
        self._note_zones("zones_at_end")
        self._note_counters("load_ended")

    async def close(self, timeout_s: float) -> None:
        """Stop following appends, and close the ledger if possible."""
        await cancel_and_wait(*self._tasks, self._opening)
        if self._writer is not None:
            with contextlib.suppress(LedgerError, TimeoutError):
                async with asyncio.timeout(2 * timeout_s):
                    await self._writer.aclose(timeout=timeout_s)

    # -- appending -------------------------------------------------------------------------------

    def _send(self) -> bool:
        """Pass the waiting appends to the writer; return whether some are left."""
        writer = self._writer
        while self._waiting and writer is not None:
            number, due = self._waiting[0]
            try:
                handle = writer.append_nowait(
                    number.to_bytes(NUMBER_BYTES, "little") + self._filling
                )
            except BackpressureError:
                return True
            except NotEnoughInSyncReplicasError:  # the ledger continues once they are back (11.4)
                self._refused_count += 1
                return True
            except LedgerError as error:
                self._switch_ledger(writer, error)
                return True
            heapq.heappop(self._waiting)
            self._unanswered += 1
            handle.add_done_callback(partial(self._take_end, writer, number, due))
        return bool(self._waiting)

    def _take_end(
        self, writer: LedgerWriter, number: int, due: float, handle: "asyncio.Future[int]"
    ) -> None:
        self._unanswered -= 1
        if handle.cancelled():
            return
        error = handle.exception()
        if error is None:
            entry_id, at = handle.result(), monotonic()
            self._has_acked = True
            self._journal.acknowledge(Ack(number, writer.id, entry_id, at))
            if number % PROBE_EVERY == 0:
                self._keep(self._follow(writer, entry_id, at))
        elif isinstance(error, LedgerError):
            self._failed_appends += 1
            heapq.heappush(self._waiting, (number, due))
            self._switch_ledger(writer, error)
        else:
            raise error

    def _switch_ledger(self, writer: LedgerWriter, error: LedgerError) -> None:
        """Stop using a ledger that takes no more appends, and open another."""
        if writer is not self._writer:
            return
        self._note_zones("zones_at_end")
        self._writer = None
        text = {"error": type(error).__name__, "message": str(error), "ledger_id": writer.id}
        self._journal.note("writer_failed", monotonic(), text)
        self._opening = asyncio.ensure_future(self._reopen(writer))

    async def _reopen(self, old: LedgerWriter) -> None:
        self._keep(_abort(old))
        if not self._has_acked:
            await asyncio.sleep(REOPEN_S)
        while True:
            try:
                writer = await self._client.create_ledger(self._quorum, timeout=CREATE_TIMEOUT_S)
            except LedgerError as error:
                fields = {"error": type(error).__name__}
                self._journal.note("create_failed", monotonic(), fields)
                await asyncio.sleep(REOPEN_S)
            else:
                self._writer = writer
                self._has_acked = False
                self._note_opened(writer)
                return

    # -- observing -------------------------------------------------------------------------------

    async def _follow(self, writer: LedgerWriter, entry_id: int, acked_at: float) -> None:
        """Record when an acknowledged entry was on its complete write quorum."""
        fields: dict[str, object] = {"ledger_id": writer.id, "entry_id": entry_id}
        try:
            await writer.wait_fully_replicated(entry_id)
        except QuorumTimeoutError:
            self._journal.note("left_short", monotonic(), fields | {"acked_at": acked_at})
        except LedgerError:
            self._journal.note("unsettled", monotonic(), fields | {"acked_at": acked_at})
        except asyncio.CancelledError:
            self._journal.note("unsettled", monotonic(), fields | {"acked_at": acked_at})
            raise
        else:
            self._journal.note("replicated", monotonic(), fields | {"acked_at": acked_at})

    async def _watch_zones(self, at: Sequence[float]) -> None:
        for moment in [later for later in at if later > monotonic()]:
            await asyncio.sleep(max(0.0, moment - monotonic()))
            self._note_zones("zones")

    def _note_zones(self, kind: str) -> None:
        writer = self._writer
        if writer is None:
            return
        fields: dict[str, object] = {
            "ledger_id": writer.id,
            "fully_to": writer.fully_replicated_to,
            "last_confirmed": writer.last_confirmed,
            "last_pushed": writer.last_pushed,
            "short": [list(pair) for pair in writer.under_replicated],
        }
        self._journal.note(kind, monotonic(), fields)

    def _note_opened(self, writer: LedgerWriter) -> None:
        ensemble = list(writer.info.fragments[-1].ensemble)
        fields = {"ledger_id": writer.id, "ensemble": ensemble}
        self._journal.note("ledger_opened", monotonic(), fields)

    def _note_counters(self, kind: str) -> None:
        stats = self._client.stats()
        fields: dict[str, object] = {
            "late_s_max": self._late_s_max,
            "failed_appends": self._failed_appends,
            "refused_count": self._refused_count,
            "add_bytes_sent": stats.add_bytes_sent,
            "adds_sent": stats.adds_sent,
        }
        self._journal.note(kind, monotonic(), fields)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.ensure_future(work))


async def _abort(writer: LedgerWriter) -> None:
    with contextlib.suppress(LedgerError):
        await writer.abort()


@dataclass(frozen=True, slots=True)
class Burst:
    """Many appends that are due at one moment."""

    at_s: float
    count: int


def due_times(rate: float, seconds: float, bursts: Sequence[Burst] = ()) -> list[float]:
    """Return when each append is due, in seconds from the start, ascending."""
    assert rate > 0
    steady = [number / rate for number in range(round(rate * seconds))]
    extra = [burst.at_s for burst in bursts for _ in range(burst.count) if burst.at_s < seconds]
    return sorted([*steady, *extra])
