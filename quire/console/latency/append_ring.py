"""The last samples of the latency of appends, for each bookie. Pure.

Leaves asking to `append_pings`, and showing to `ledger_latency`.

Invariants: at most SAMPLES_MAX samples of a bookie are kept, and at most BOOKIES_MAX bookies: the
one whose last sample is the oldest is dropped first; the samples of a bookie ascend in time.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata.ids import BookieId

SAMPLES_MAX: Final = 360
"""An hour of samples, at one each 10 s."""
BOOKIES_MAX: Final = 200


class Sample(NamedTuple):
    """What a bookie said at one time."""

    at_ms: int
    """Milliseconds since 1970."""
    p99_us: int | None
    """p99 of the appends of clients in the 5 to 10 s before, rounded up; 0 without appends; None
    if the bookie did not answer.
    """


class AppendRing:
    """Samples of all bookies."""

    def __init__(self) -> None:
        self._samples: dict[BookieId, deque[Sample]] = {}

    def note(self, bookie_id: BookieId, sample: Sample) -> None:
        """Keep one more sample, the newest of its bookie."""
        kept = self._samples.pop(bookie_id, None)  # to the end: the newest are dropped last
        if kept is None:
            kept = deque(maxlen=SAMPLES_MAX)
        kept.append(sample)
        self._samples[bookie_id] = kept
        if len(self._samples) > BOOKIES_MAX:
            del self._samples[next(iter(self._samples))]

    def of(self, bookie_id: BookieId) -> Sequence[Sample]:
        """Return the samples of a bookie, the oldest first."""
        return tuple(self._samples.get(bookie_id, ()))
