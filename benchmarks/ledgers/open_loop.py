"""Open loop of appends at a fixed rate: each append's latency counts from its due time.

Leaves the schedule to `benchmarks.measures` and faults of bookies to the scripts.

Invariant: no coordinated omission: a stall counts for every append that was due during it, whether
or not it could be sent. (The event loop's clock is not used: uvloop's has a resolution of 1 ms.)
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Final

from ledger_client import BackpressureError, LedgerError, LedgerWriter

RETRY_S: Final = 0.005


@dataclass(slots=True)
class OpenLoop:
    """Outcome of appends that were due at given times."""

    due: list[float] = field(default_factory=list)
    """Due time of each append, in seconds since the start."""
    took: list[float] = field(default_factory=list)
    """Seconds from the due time to the confirmation of each append, in the order of `due`."""
    failures: list[str] = field(default_factory=list)
    late_ms_max: float = 0.0
    """Maximum delay of the generator behind its schedule: above a few ms, the figures show the
    machine and not the system under test."""

    def took_after(self, start: float) -> list[float]:
        """Return the latencies of appends due at `start` or later."""
        return [took for due, took in zip(self.due, self.took, strict=True) if due >= start]

    def took_before(self, end: float) -> list[float]:
        """Return the latencies of appends due before `end`."""
        return [took for due, took in zip(self.due, self.took, strict=True) if due < end]


async def append_at(ledger: LedgerWriter, payload: bytes, times: Iterable[float]) -> OpenLoop:
    """Append at each of `times`, in seconds from now; return once all have ended."""
    result = OpenLoop()
    start = perf_counter()
    handles: list[tuple[float, asyncio.Future[int]]] = []
    ended: dict[int, float] = {}

    def note_end(number: int, _: "asyncio.Future[int]") -> None:
        ended[number] = perf_counter() - start

    for number, due in enumerate(times):
        await _sleep_until(start + due)
        result.late_ms_max = max(result.late_ms_max, (perf_counter() - start - due) * 1e3)
        handle = await _admit(ledger, payload)
        handle.add_done_callback(partial(note_end, number))
        handles.append((due, handle))
    outcomes = await asyncio.gather(*(handle for _, handle in handles), return_exceptions=True)
    for number, ((due, _), outcome) in enumerate(zip(handles, outcomes, strict=True)):
        if isinstance(outcome, LedgerError):
            result.failures.append(f"{type(outcome).__name__}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            result.due.append(due)
            result.took.append(ended[number] - due)
    return result


async def _sleep_until(moment: float) -> None:
    rest = moment - perf_counter()
    if rest > 0:
        await asyncio.sleep(rest)


async def _admit(ledger: LedgerWriter, payload: bytes) -> "asyncio.Future[int]":
    while True:
        try:
            return ledger.append_nowait(payload)
        except BackpressureError:
            await asyncio.sleep(RETRY_S)
