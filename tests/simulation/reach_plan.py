"""Plan of what some runs add to the workload and the faults that all runs have.

Leaves the rest of a plan to `tests.simulation.plan`. Separate generators draw these values, so that
the runs without them keep their plans.

Source: assurance design, "Deterministic simulation" (swarm odds).
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from bookie.options import BookieOptions
from bookie.wire.batch import ENTRY_BYTES_MAX
from ledger_client import ClientConfig

CALLERS_SHARE: Final = 0.2
"""Share of the runs in which several tasks append to one writer."""
WINDOWS: Final = ((3_000, 5), (8_000, 30))
"""Bytes and entries that such a writer admits: callers wait for room."""
UNANSWERED_BYTES_MAX: Final = 24_000
SMALL_ENTRY_BYTES_MAX: Final = 8_000
BURSTS_SHARE: Final = 0.1
"""Share of the runs in which some ledgers have a burst."""
BURST_WINDOW: Final = (2**23, 200_000)
BURST_UNANSWERED_BYTES_MAX: Final = 2**28
BURST_BATCH_ENTRIES_MAX: Final = 400
BURST_READ_BYTES_MAX: Final = 2**20
"""Less than a burst of large entries: an answer to a read ends in the middle of it."""

FAULTS: Final = {"unclean_close": ("in_sync",), "stop_within": ("takeovers", "metadata")}
"""Kinds of faults with the themes in whose runs they are more frequent."""
FAULT_SHARE: Final = 0.08
THEME_SHARE: Final = 0.3
FAULT_COUNT: Final = 6.0
CALM_FACTOR: Final = 5.0
"""An unclean recovery takes long: among frequent other faults it would seldom come to its end."""
BUSY_S: Final = 1_200.0
"""Every run has as many of these faults as one of this length, in seconds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What one run adds."""

    callers: int = 0
    """Tasks that append to one writer at the same time; 0 if only one task appends."""
    bursts: int = 0
    """Maximum number of bursts of many or large entries."""


NOTHING_MORE: Final = Reach()


def draw_reach(seed: int) -> Reach:
    """Draw what a seed adds."""
    callers_rng = random.Random(f"sharing {seed}")
    has_callers = callers_rng.random() < CALLERS_SHARE
    bursts_rng = random.Random(f"bursts {seed}")
    has_bursts = not has_callers and bursts_rng.random() < BURSTS_SHARE
    return Reach(
        callers=callers_rng.randint(2, 8) if has_callers else 0,
        bursts=bursts_rng.randint(1, 3) if has_bursts else 0,
    )


def with_faults(
    every_s: dict[str, float], seed: int, theme: str, duration_s: float
) -> dict[str, float]:
    """Add the faults of a seed to the others: kind -> mean seconds between two of them."""
    added = {}
    for kind, themes in FAULTS.items():
        rng = random.Random(f"new fault {kind} {seed}")
        if rng.random() < (THEME_SHARE if theme in themes else FAULT_SHARE):
            added[kind] = min(duration_s, BUSY_S) / (FAULT_COUNT * rng.uniform(0.5, 1.5))
    calm = CALM_FACTOR if "unclean_close" in added else 1.0
    return {kind: calm * mean_s for kind, mean_s in every_s.items()} | added


def with_limits(config: ClientConfig, reach: Reach, seed: int) -> ClientConfig:
    """Return the limits of a client that suit what the run adds."""
    rng = random.Random(f"reach limits {seed}")
    if reach.bursts:
        window_bytes_max, window_entries_max = BURST_WINDOW
        config = replace(
            config,
            batch_entries_max=BURST_BATCH_ENTRIES_MAX,
            window_bytes_max=window_bytes_max,
            window_entries_max=window_entries_max,
            unanswered_bytes_max=BURST_UNANSWERED_BYTES_MAX,
            entry_bytes_max=ENTRY_BYTES_MAX,
            read_bytes_max=BURST_READ_BYTES_MAX,
        )
    if reach.callers:
        window_bytes_max, window_entries_max = rng.choice(WINDOWS)
        config = replace(
            config,
            window_bytes_max=window_bytes_max,
            window_entries_max=window_entries_max,
        )
        if not reach.bursts:
            config = replace(
                config,
                unanswered_bytes_max=UNANSWERED_BYTES_MAX,
                entry_bytes_max=SMALL_ENTRY_BYTES_MAX,
            )
    return config


def with_room(options: BookieOptions, reach: Reach) -> BookieOptions:
    """Return the options of a bookie that accepts what the run adds."""
    if not reach.bursts:
        return options
    return replace(options, segment_bytes_max=2**22, queue_bytes_max=2**23)
