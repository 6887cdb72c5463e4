"""Says which fault strikes when: each scenario is one value.

Leaves performing them to `quire.bench.compare.injection`.

Invariant: every scenario leaves time after its last fault to see the cluster come back.

Source: issue 5, point 3.
"""

from dataclasses import dataclass, replace
from typing import Final

from quire.bench.compare import faults as f
from quire.bench.compare.schedule import Burst

BASE_SECONDS: Final = 10.0
"""How long a usual scenario takes at scale 1."""
SPARES: Final = 2
BURST_ENTRIES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, and when: seconds from the start of the load."""

    at_s: float
    fault: f.Fault


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens during one run."""

    name: str
    says: str
    steps: tuple[Step, ...] = ()
    seconds: float = BASE_SECONDS
    bursts: tuple[Burst, ...] = ()
    spares: int = SPARES
    """Bookies beyond the ensemble."""
    zones_at_s: float = 6.0
    """When the zones of the ledger are taken down: while the fault lasts."""

    @property
    def delays_network(self) -> bool:
        """Whether traffic to bookies must pass through us."""
        return any(isinstance(step.fault, f.DelayNetwork) for step in self.steps)

    @property
    def kills_writer(self) -> bool:
        """Whether a second writer must wait ready."""
        return any(isinstance(step.fault, f.KillWriter) for step in self.steps)

    def scaled(self, scale: float) -> "Scenario":
        """Return the same with every time stretched; what a fault itself is stays as it is."""
        return replace(
            self,
            steps=tuple(replace(step, at_s=step.at_s * scale) for step in self.steps),
            seconds=self.seconds * scale,
            bursts=tuple(replace(burst, at_s=burst.at_s * scale) for burst in self.bursts),
            zones_at_s=self.zones_at_s * scale,
        )


SCENARIOS: Final = (
    Scenario("steady", "nothing goes wrong"),
    Scenario(
        "slow-bookie",
        "one bookie is stopped 90 ms of every 100 ms: stands for a slow disk or a busy machine",
        (Step(3, f.SlowBookie(0, 0.09, 0.1)), Step(8, f.HealSlowness())),
    ),
    Scenario(
        "slow-network",
        "50 ms each way between the client and one bookie",
        (Step(3, f.DelayNetwork(0, 0.05)), Step(8, f.HealSlowness())),
    ),
    Scenario(
        "paused-bookie",
        "one bookie is silent for 10 s, with its connections open",
        (Step(3, f.PauseBookie(0)), Step(13, f.ResumeBookie(0))),
        seconds=16,
        zones_at_s=8,
    ),
    Scenario(
        "killed-bookie",
        "one bookie dies and comes back with its data 3 s later",
        (Step(3, f.KillBookie(0)), Step(6, f.RestartBookie(0))),
        zones_at_s=5,
    ),
    Scenario(
        "two-failures",
        "two bookies die 5 s apart and stay away",
        (Step(2, f.KillBookie(0)), Step(7, f.KillBookie(1))),
        seconds=12,
        zones_at_s=9,
    ),
    Scenario(
        "zookeeper-slow",
        "ZooKeeper is stopped 450 ms of every 500 ms, and a bookie dies meanwhile",
        (
            Step(2, f.SlowZooKeeper(0.45, 0.5)),
            Step(3, f.KillBookie(0)),
            Step(8, f.HealSlowness()),
        ),
    ),
    Scenario(
        "zookeeper-gone",
        "ZooKeeper is silent for 6 s, and a bookie dies meanwhile",
        (Step(2, f.PauseZooKeeper()), Step(4, f.KillBookie(0)), Step(8, f.HealSlowness())),
        seconds=12,
    ),
    Scenario(
        "no-spares",
        "one bookie dies, no other could take its place, and it comes back 4 s later",
        (Step(3, f.KillBookie(0)), Step(7, f.RestartBookie(0))),
        spares=0,
    ),
    Scenario(
        "bursts",
        f"{BURST_ENTRIES:,} more entries are due at one moment, three times",
        bursts=(Burst(3, BURST_ENTRIES), Burst(5, BURST_ENTRIES), Burst(7, BURST_ENTRIES)),
        zones_at_s=5.05,
    ),
    Scenario(
        "writer-takeover",
        "the writer dies; another process recovers its ledger and goes on in a new one",
        (Step(4, f.KillWriter()),),
        zones_at_s=3.9,
    ),
)
BY_NAME: Final = {each.name: each for each in SCENARIOS}
