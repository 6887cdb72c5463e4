"""Choice of the runs with chains and claims, and of their clients and faults.

Leaves the rest of a plan to `tests.simulation.plan`. A separate generator draws these values, so
that the plans of all other seeds are the same with and without them.

Source: Spark design, "Writing: exactly once"; `quire/operate/appends.py`.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.store import StoreOdds

THEME: Final = "metadata"
THEME_SHARE: Final = 0.6
SHARE: Final = 0.05
"""Share of the runs of other themes with chains and claims."""
LOST_SHARE: Final = (0.05, 0.15)
LOST_WATCH_SHARE_MAX: Final = 0.05
DELAY_S_MAX: Final = 0.005
SLOW_SHARE_MIN: Final = 0.2
SLOW_DELAY_S_MAX: Final = 3.0
SHORT_S: Final = 300.0
"""Longer runs have no chains: they would cost too much."""
BURST_EVERY_S: Final = 15.0
DURATION_S: Final = 150.0
TRUE_TIME_SHARE: Final = 0.5
"""Share of these runs in which the clients have the true time of day."""
STALL: Final = "stall_store"
STALLS: Final = 2.0
"""Mean number of stalls, at most: a stall may last as long as half of the run."""
KINDS: Final = ("replace_leader", "expire_session", "suspend_session", "kill_client")
FAULTS_MIN: Final = 4.0
"""Mean number of faults of each of these kinds, at least."""


@dataclass(frozen=True, slots=True)
class ChainWork:
    """Clients of chains and claims, and what they draw from."""

    names: tuple[str, ...]
    publishers: int
    """Those with an even number share one application."""
    followers: int
    claimers: int
    delete_share: float
    """Share of an administrator's steps that delete the chain."""
    grace_s: float
    """Grace period of collections: a short one collects ledgers before they are published."""
    pause_s: float
    """Mean pause between two steps of a client, within a burst."""
    burst_s: float
    """All clients work in bursts of this length, so that they meet."""
    has_true_time: bool
    """Whether the clients have the true time of day: each collection then meets ledgers that were
    just written. A wrong clock makes it meet none, or refuse all that its publisher writes.
    """

    def next_step_s(self, now_s: float, rng: random.Random) -> float:
        """Return the time of a client's next step: in this burst, or in the next one."""
        at_s = now_s + self.pause_s * 2 * rng.random()
        since_s = at_s % BURST_EVERY_S
        if since_s < self.burst_s:
            return at_s
        return at_s - since_s + BURST_EVERY_S + self.pause_s * rng.random()


def draw_chains(seed: int, theme: str, duration_s: float) -> ChainWork | None:
    """Draw the clients of a run; None for a run without chains."""
    rng = random.Random(f"chains {seed}")
    if duration_s > SHORT_S or rng.random() >= (THEME_SHARE if theme == THEME else SHARE):
        return None
    return ChainWork(
        names=rng.choice((("orders",), ("orders",), ("orders", "events"))),
        publishers=rng.randint(2, 3),
        followers=rng.randint(1, 2),
        claimers=rng.randint(2, 3),
        delete_share=rng.choice((0.05, 0.2, 0.5)),
        grace_s=rng.choice((0.0, 5.0, 60.0)),
        pause_s=rng.choice((0.1, 0.4)),
        burst_s=rng.choice((1.0, 3.0)),
        has_true_time=random.Random(f"true time {seed}").random() < TRUE_TIME_SHARE,
    )


def with_lost_answers(odds: StoreOdds, work: ChainWork | None) -> StoreOdds:
    """Return the odds of the metadata service, some of whose answers are late or lost."""
    if work is None:
        return odds
    return replace(
        odds,
        delay_s=min(odds.delay_s, DELAY_S_MAX),
        lost_share=min(max(odds.lost_share, LOST_SHARE[0]), LOST_SHARE[1]),
        slow_share=max(odds.slow_share, SLOW_SHARE_MIN),
        slow_delay_s=min(odds.slow_delay_s, SLOW_DELAY_S_MAX),
        refused_share=0.0,
        lost_watch_share=min(odds.lost_watch_share, LOST_WATCH_SHARE_MAX),
    )


def with_duration(duration_s: float, work: ChainWork | None) -> float:
    """Return the length of a run, which has several bursts if it has chains."""
    return duration_s if work is None else DURATION_S


def with_faults(
    every_s: dict[str, float], work: ChainWork | None, duration_s: float
) -> dict[str, float]:
    """Return the rates of faults; those of the metadata service occur in each run with chains."""
    if work is None:
        return every_s
    wanted_s = duration_s / FAULTS_MIN
    often = {kind: min(wanted_s, every_s.get(kind, wanted_s)) for kind in KINDS}
    stall_s = duration_s / STALLS
    return {**every_s, **often, STALL: max(stall_s, every_s.get(STALL, stall_s))}
