"""History of faults, drawn from a seed: the same for every configuration.

Leaves their effects to `simulation`.

Invariants: each subject and kind of fault has separate random numbers, so that neither the
configuration nor the rate of another kind changes them; doubling a rate halves its intervals.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from benchmarks.fleet.assumptions import HOUR_S, MONTH_S, Assumptions


class FaultKind(StrEnum):
    """Kinds of faults."""

    CRASH = "crash"
    DISK_LOSS = "disk loss"
    PAUSE = "pause"
    SLOW = "slow period"
    RACK = "rack failure"
    ZOOKEEPER = "ZooKeeper outage"
    CLIENT_CRASH = "client crash"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault; its subject is the number of a machine, a rack or a client."""

    at_s: float
    kind: FaultKind
    subject: int
    duration_s: float

    @property
    def end_s(self) -> float:
        """Time at which the fault ends."""
        return self.at_s + self.duration_s


def draw_history(assumptions: Assumptions, seed: int) -> list[Fault]:
    """Return all faults of the simulated period, ordered by time."""
    a = assumptions
    plans = (
        (FaultKind.CRASH, a.bookies, a.crashes, a.restart_s),
        (FaultKind.PAUSE, a.bookies, a.pauses, a.pause_s),
        (FaultKind.SLOW, a.bookies, a.slow_periods, a.slow_s),
        (FaultKind.RACK, a.racks, a.rack_failures, a.rack_down_s),
        (FaultKind.ZOOKEEPER, 1, a.zookeeper_outages, a.zookeeper_outage_s),
        (FaultKind.CLIENT_CRASH, a.clients, a.client_crashes, 0.0),
        (FaultKind.DISK_LOSS, a.bookies, a.disk_losses, a.replace_hours * HOUR_S),
    )
    faults: list[Fault] = []
    for kind, subjects, per_month, mean_s in plans:
        for subject in range(subjects):
            rng = Random(f"{seed}/{kind}/{subject}")
            for at_s, duration_s in _times(rng, per_month, mean_s, a.end_s):
                is_fixed = kind is FaultKind.DISK_LOSS
                faults.append(Fault(at_s, kind, subject, mean_s if is_fixed else duration_s))
    return sorted(faults)


def _times(
    rng: Random, per_month: float, mean_s: float, end_s: float
) -> Iterator[tuple[float, float]]:
    """Yield begin times and lengths. Intervals and lengths are exponential; each fault begins
    after the previous one ended.
    """
    at_s = 0.0
    while per_month > 0:
        at_s += rng.expovariate(1.0) * MONTH_S / per_month
        duration_s = rng.expovariate(1.0) * mean_s
        if at_s >= end_s:
            return
        yield at_s, duration_s
        at_s += duration_s
