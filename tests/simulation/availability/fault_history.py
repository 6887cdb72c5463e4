"""History of the faults of a run: which part had one, from when until when.

Leaves injecting faults to `tests.simulation.faults`, and judging errors by them to `decision`.

Invariant: a fault that ended more than `KEPT_S` ago is dropped, so that a long run stays small.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.simulation.availability.decision import FaultTime

KEPT_S: Final = 400.0
"""More than every time limit that ends an operation, and every bound after healing."""
DROPPED_AT: Final = 256
SLOW_S: Final = 0.2
"""Delay of one message or request that counts as a fault, in seconds: every time limit and every
suspicion is longer.
"""


class FaultHistory:
    """Faults of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._faults: list[FaultTime] = []
        self._drop_at = DROPPED_AT

    def begin(self, part: str) -> FaultTime:
        """Record that a fault begins."""
        fault = FaultTime(part, self._now())
        self._faults.append(fault)
        if len(self._faults) >= self._drop_at:
            since = self._now() - KEPT_S
            self._faults = [each for each in self._faults if each.ended >= since]
            self._drop_at = 2 * len(self._faults) + DROPPED_AT
        return fault

    def end(self, fault: FaultTime | None) -> None:
        """Record that a fault ends; does nothing for one that has ended."""
        if fault is not None:
            fault.ended = min(fault.ended, self._now())

    def add(self, part: str, seconds: float = 0.0) -> None:
        """Record a fault that ends after a time."""
        self.begin(part).ended = self._now() + seconds

    def note_delay(self, part: str, delay_s: float) -> None:
        """Record a delay, unless it is too short to have an effect."""
        if delay_s >= SLOW_S:
            self.add(part, delay_s)

    @contextmanager
    def lasting(self, part: str) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        fault = self.begin(part)
        try:
            yield
        finally:
            self.end(fault)

    def recent(self) -> list[FaultTime]:
        """Return the faults that last or ended within `KEPT_S`, in the order of their begin."""
        since = self._now() - KEPT_S
        return [each for each in self._faults if each.ended >= since]
