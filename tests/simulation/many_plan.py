"""Choice of the runs in which one client holds hundreds of open ledgers, and of its limits.

Leaves the rest of a plan to `tests.simulation.plan`. A separate generator draws these values, so
that the plans of all other seeds are the same with and without them.

Source: protocol rules 4.6, 5.2, 5.6 and 11.3; metadata design, "Storms".
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from ledger_client import ClientConfig

THEMES: Final = ("in_sync", "changes")
SHARE: Final = 0.25
"""Share of the runs of these themes; such a run costs several times as much as another one."""
DURATION_S_MAX: Final = 160.0
KIND: Final = "leave_bookie"
LEAVES: Final = 3.0
"""Mean number of times that a bookie leaves and returns."""
ONE_CALL_S: Final = 1e-18
"""Virtual time does not pass within a slice: with this limit, a slice makes one call."""


@dataclass(frozen=True, slots=True)
class ManyLedgers:
    """Ledgers of one client."""

    count: int
    appends: float
    """Mean number of appends to each during the run: most ledgers are idle at any time."""
    slice_max_s: float
    changes_at_once: int
    copies_at_once: int


def draw_many(seed: int, theme: str, duration_s: float) -> ManyLedgers | None:
    """Draw the ledgers of a run; None for a run without them."""
    rng = random.Random(f"many {seed}")
    if theme not in THEMES or duration_s > DURATION_S_MAX or rng.random() >= SHARE:
        return None
    return ManyLedgers(
        count=rng.choice((200, 300, 500)),
        appends=rng.choice((0.5, 1.5)),
        slice_max_s=rng.choice((ONE_CALL_S, ONE_CALL_S, 0.005)),
        changes_at_once=rng.choice((1, 8, 64)),
        copies_at_once=rng.choice((1, 16)),
    )


def with_limits(config: ClientConfig, many: ManyLedgers | None) -> ClientConfig:
    """Return the configuration of all clients of a run."""
    if many is None:
        return config
    return replace(
        config,
        slice_max_s=many.slice_max_s,
        metadata_changes_at_once=many.changes_at_once,
        copies_at_once=many.copies_at_once,
    )


def with_leaves(
    every_s: dict[str, float], many: ManyLedgers | None, duration_s: float
) -> dict[str, float]:
    """Return the rates of faults; a bookie leaves and returns in each run with many ledgers."""
    return every_s if many is None else {**every_s, KIND: duration_s / LEAVES}
