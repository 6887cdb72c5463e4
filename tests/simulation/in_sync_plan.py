"""Choice of the ledgers of a run in in-sync mode, and of the limits of their writers.

Leaves the rest of a plan to `tests.simulation.plan`. A separate generator draws these values, so
that the rest of a seed's plan is the same with and without them.

Invariant: an in-sync ledger survives the permanent loss of `min_in_sync - 1` members, but of no
more.
Source: protocol section 11.
"""

import random
from dataclasses import replace
from typing import Final

from ledger_client import ClientConfig, Quorum

THEME: Final = "in_sync"
SHARE: Final = 0.4
"""Share of the runs of other themes in which some ledgers are in in-sync mode."""
SIZES: Final = (2, 3, 3, 4)


def losses_tolerated(quorum: Quorum) -> int:
    """Return how many bookies may lose their data before an acknowledged entry is lost."""
    return (quorum.min_in_sync if quorum.spec.is_in_sync else quorum.ack) - 1


def with_in_sync(
    quorums: tuple[Quorum, ...], seed: int, theme: str, bookie_count: int, *, least: int
) -> tuple[Quorum, ...]:
    """Add in-sync ledgers to those of a run, or replace them; `least` is the smallest
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
