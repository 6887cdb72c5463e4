"""Draws which ledgers of a run are in in-sync mode, and how patient their writers are.

Leaves everything else of a plan to `tests.simulation.plan`. What is drawn here has a generator of
its own, so that the rest of a seed's plan is the same with and without it.

Invariant: of an in-sync ledger, `min_in_sync - 1` members may be lost for good, and no more.
Source: protocol section 11.
"""

import random
from dataclasses import replace
from typing import Final

from ledger_client import ClientConfig, Quorum

THEME: Final = "in_sync"
SHARE: Final = 0.4
"""Of the runs of other themes: those in which some ledgers are in in-sync mode."""
SIZES: Final = (2, 3, 3, 4)


def losses_tolerated(quorum: Quorum) -> int:
    """Return how many bookies may lose what they hold before an acknowledged entry is lost."""
    return (quorum.min_in_sync if quorum.spec.is_in_sync else quorum.ack) - 1


def with_in_sync(
    quorums: tuple[Quorum, ...], seed: int, theme: str, bookie_count: int, *, least: int
) -> tuple[Quorum, ...]:
    """Put ledgers in in-sync mode among those of a run, or in their place; `least` is the smallest
    `min_in_sync`.
    """
    rng = random.Random(f"in sync {seed}")
    sizes = [size for size in SIZES if least <= size <= bookie_count]
    if theme == THEME:
        return tuple(_draw(rng, sizes, least) for _ in range(rng.randint(1, 2)))
    if rng.random() < SHARE:
        return (*quorums, _draw(rng, sizes, least))
    return quorums


def with_patience(config: ClientConfig, seed: int) -> ClientConfig:
    """Draw when a spare takes over, how fast copies are, and what counts as lagging."""
    rng = random.Random(f"in sync patience {seed}")
    return replace(
        config,
        spare_after_s=rng.choice((0.5, 2.0, 8.0)),
        replica_lag_messages_max=rng.choice((None, None, None, 5, 50)),
        copy_bytes_per_s=rng.choice((None, 32.0 * 2**20, 20_000.0)),
    )


def _draw(rng: random.Random, sizes: list[int], least: int) -> Quorum:
    size = rng.choice(sizes)
    lag_s = rng.choice((0.3, 1.0, 3.0))
    return Quorum.in_sync(size, rng.randint(least, size), replica_lag_time_max=lag_s)
