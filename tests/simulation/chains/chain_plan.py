"""Choice of the runs with chains and claims, and of their clients and faults.

Leaves the rest of a plan to `tests.simulation.plan`. A separate generator draws these values, so
that the plans of all other seeds are the same with and without them.

Source: Spark design, "Writing: exactly once"; `quire/claims.py`.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.store import StoreOdds

THEME: Final = "metadata"
THEME_SHARE: Final = 0.6
SHARE: Final = 0.05
"""Share of the runs of other themes with chains and claims."""
LOST_SHARE_MIN: Final = 0.05
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
    """Mean pause between two steps of a client."""


def draw_chains(seed: int, theme: str, duration_s: float) -> ChainWork | None:
    """Draw the clients of a run; None for a run without chains."""
    rng = random.Random(f"chains {seed}")
    if rng.random() >= (THEME_SHARE if theme == THEME else SHARE):
        return None
    return ChainWork(
        names=rng.choice((("orders",), ("orders",), ("orders", "events"))),
        publishers=rng.randint(2, 3),
        followers=rng.randint(1, 2),
        claimers=rng.randint(2, 3),
        delete_share=rng.choice((0.05, 0.2, 0.5)),
        grace_s=rng.choice((0.0, 5.0, 60.0)),
        pause_s=max(1.0, duration_s / rng.choice((30, 80))),
    )


def with_lost_answers(odds: StoreOdds, work: ChainWork | None) -> StoreOdds:
    """Return the odds of the metadata service, which loses some answers in a run with chains."""
    if work is None:
        return odds
    return replace(odds, lost_share=max(odds.lost_share, LOST_SHARE_MIN))


def with_faults(
    every_s: dict[str, float], work: ChainWork | None, duration_s: float
) -> dict[str, float]:
    """Return the rates of faults; those of the metadata service occur in each run with chains."""
    if work is None:
        return every_s
    wanted_s = max(1.5, duration_s / FAULTS_MIN)
    return {**every_s, **{k: min(wanted_s, every_s.get(k, wanted_s)) for k in KINDS}}
