"""Catalogue of scenarios: each is one value that lists its faults and their times.

Invariant: every scenario leaves time after its last fault to observe the recovery of the cluster.

Source: docs/which-quorum.md, "How it is measured".
"""

from dataclasses import dataclass, replace
from typing import Final

from quire.bench import faults as f
from quire.bench.open_load import Burst

BASE_SECONDS: Final = 10.0
"""Length of a usual scenario at scale 1, in seconds."""
SPARES: Final = 2
BURST_ENTRIES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, and its time in seconds from the start of the load."""

    at_s: float
    fault: f.Fault


@dataclass(frozen=True, slots=True)
class Scenario:
    """Faults and conditions of one run."""

    name: str
    text: str
    """What happens; `{:g}` stands for the seconds between two steps."""
    steps: tuple[Step, ...] = ()
    seconds: float = BASE_SECONDS
    bursts: tuple[Burst, ...] = ()
    between: tuple[int, int] = (0, 0)
    """The steps whose distance the text names."""
    spares: int = SPARES
    """Number of bookies beyond the ensemble."""
    zones_at_s: float = 6.0
    """Time at which the zones of the ledger are recorded, while the fault lasts."""

    @property
    def says(self) -> str:
        """What happens, with the durations of this scale."""
        if not self.steps:
            return self.text
        first, last = (self.steps[step].at_s for step in self.between)
        return self.text.format(last - first)

    @property
    def delays_network(self) -> bool:
        """Whether traffic to bookies must pass through proxies."""
        return any(isinstance(step.fault, f.DelayNetwork) for step in self.steps)

    @property
    def kills_writer(self) -> bool:
        """Whether a second writer must be ready to take over."""
        return any(isinstance(step.fault, f.KillWriter) for step in self.steps)

    def scaled(self, scale: float) -> "Scenario":
        """Return the scenario with every time scaled; the faults' own parameters do not change."""
        return replace(
            self,
            steps=tuple(replace(step, at_s=step.at_s * scale) for step in self.steps),
            seconds=self.seconds * scale,
            bursts=tuple(replace(burst, at_s=burst.at_s * scale) for burst in self.bursts),
            zones_at_s=self.zones_at_s * scale,
        )


SCENARIOS: Final = (
    Scenario("steady", "no fault"),
    Scenario(
        "slow-bookie",
        "one bookie is stopped 90 ms of every 100 ms: models a slow disk or a busy machine",
        (Step(3, f.SlowBookie(0, 0.09, 0.1)), Step(8, f.HealSlowness())),
    ),
    Scenario(
        "slow-network",
        "50 ms each way between the client and one bookie",
        (Step(3, f.DelayNetwork(0, 0.05)), Step(8, f.HealSlowness())),
    ),
    Scenario(
        "paused-bookie",
        "one bookie does not respond for {:g} s, with its connections open",
        (Step(3, f.PauseBookie(0)), Step(13, f.ResumeBookie(0))),
        between=(0, 1),
        seconds=16,
        zones_at_s=8,
    ),
    Scenario(
        "killed-bookie",
        "one bookie dies and comes back with its data {:g} s later",
        (Step(3, f.KillBookie(0)), Step(6, f.RestartBookie(0))),
        between=(0, 1),
        zones_at_s=5,
    ),
    Scenario(
        "two-failures",
        "two bookies die {:g} s apart and stay away",
        (Step(2, f.KillBookie(0)), Step(7, f.KillBookie(1))),
        between=(0, 1),
        seconds=12,
        zones_at_s=9,
    ),
    Scenario(
        "zookeeper-slow",
        "a bookie dies while ZooKeeper is stopped 450 ms of every 500 ms",
        (
            Step(2, f.SlowZooKeeper(0.45, 0.5)),
            Step(3, f.KillBookie(0)),
            Step(8, f.HealSlowness()),
        ),
    ),
    Scenario(
        "zookeeper-gone",
        "a bookie dies while ZooKeeper does not respond for {:g} s",
        (Step(2, f.PauseZooKeeper()), Step(4, f.KillBookie(0)), Step(8, f.HealSlowness())),
        between=(0, 2),
        seconds=12,
    ),
    Scenario(
        "no-spares",
        "one bookie dies, no other can take its place, and it comes back {:g} s later",
        (Step(3, f.KillBookie(0)), Step(7, f.RestartBookie(0))),
        between=(0, 1),
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
        "the writer dies; another process recovers its ledger and continues in a new one",
        (Step(4, f.KillWriter()),),
        zones_at_s=3.9,
    ),
)
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
