"""Figures of a run, and the spread of several runs of a configuration.

Leaves printing them to `benchmarks.fleet.command`.

Invariants: pure; a figure that does not apply to a configuration is None, never 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.fleet.assumptions import GIBIBYTE, HOUR_S, MEBIBYTE, Assumptions, described
from benchmarks.fleet.history import FaultKind, draw_history
from benchmarks.fleet.world import World

Figure = float | int | None


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of one configuration under one history."""

    configuration: str
    seed: int
    append_availability: float
    """Share of ledger-time in which appends were confirmed."""
    outage_s_per_ledger: float
    longest_outage_s: float
    slow_share: float
    """Share of ledger-time in which appends waited for a slow bookie."""
    read_availability: float
    """Share of stored GiB-hours with a copy on a bookie that responded."""
    stored_gib_hours: float
    """Stored data over time, counted once per entry."""
    lost_gib_hours: float
    one_copy_gib_hours: float
    """Data with one copy: one more disk loss loses acknowledged entries."""
    two_copies_gib_hours: float
    """Data with two copies: two more disk losses lose acknowledged entries."""
    short_gib_hours: float
    """Data with fewer copies than the write quorum."""
    at_ack_quorum_gib_hours: float | None
    """Data with no more copies than the ack quorum; None if that equals the write quorum."""
    peak_one_copy_gib: float
    """Maximum at any time, including data without a copy."""
    peak_at_ack_quorum_gib: float | None
    lost_gib: float
    lost_ledgers: int
    repaired_gib: float
    caught_up_gib: float
    peak_copy_mib_per_s: float
    """Mean rate of the busiest hour, all bookies together."""
    change_count: int
    recovery_count: int
    undecided_count: int
    undecided_hours: float
    longest_undecided_s: float
    given_up_count: int

    def values(self) -> dict[str, Figure]:
        """Return the figures by name."""
        named = asdict(self)
        return {name: named[name] for name in named if name not in ("configuration", "seed")}


def figures(world: World, seed: int) -> RunFigures:
    """Turn the sums of a run that has ended into figures."""
    assumptions, measures, quorum = world.assumptions, world.measures, world.configuration.quorum
    ledger_s = assumptions.ledgers * assumptions.end_s
    gib = assumptions.entry_bytes / GIBIBYTE
    hours = gib / HOUR_S
    below = world.existing.entry_seconds
    at = [*below, measures.stored_entry_s - sum(below)]  # by number of copies
    has_slack = quorum.ack_quorum < quorum.write_quorum
    to_ack = slice(quorum.ack_quorum + 1)
    return RunFigures(
        configuration=world.configuration.name,
        seed=seed,
        append_availability=1 - measures.outage_s / ledger_s,
        outage_s_per_ledger=measures.outage_s / assumptions.ledgers,
        longest_outage_s=measures.longest_outage_s,
        slow_share=measures.slow_s / ledger_s,
        read_availability=1 - world.readable.entry_seconds[0] / max(1.0, measures.stored_entry_s),
        stored_gib_hours=measures.stored_entry_s * hours,
        lost_gib_hours=at[0] * hours,
        one_copy_gib_hours=at[1] * hours,
        two_copies_gib_hours=at[2] * hours,
        short_gib_hours=sum(below) * hours,
        at_ack_quorum_gib_hours=sum(below[to_ack]) * hours if has_slack else None,
        peak_one_copy_gib=world.existing.peak[1] * gib,
        peak_at_ack_quorum_gib=world.existing.peak[quorum.ack_quorum] * gib if has_slack else None,
        lost_gib=world.existing.lost_entries * gib,
        lost_ledgers=len(world.existing.lost_ledgers),
        repaired_gib=measures.repaired_entries * gib,
        caught_up_gib=measures.caught_up_entries * gib,
        peak_copy_mib_per_s=measures.busiest_hour_entries
        * assumptions.entry_bytes
        / MEBIBYTE
        / HOUR_S,
        change_count=measures.change_count,
        recovery_count=measures.recovery_count,
        undecided_count=measures.undecided_count,
        undecided_hours=measures.undecided_s / HOUR_S,
        longest_undecided_s=measures.longest_undecided_s,
        given_up_count=measures.given_up_count,
    )


@dataclass(frozen=True, slots=True)
class FigureSpread:
    """One figure over several histories."""

    least: float
    middle: float
    most: float


def spread(runs: Sequence[RunFigures], name: str) -> FigureSpread | None:
    """Return the spread of a figure, or None if it does not apply."""
    values = [value for run in runs if (value := run.values()[name]) is not None]
    return FigureSpread(min(values), median(values), max(values)) if values else None


def fault_counts(assumptions: Assumptions, seed: int) -> dict[str, int]:
    """Count the faults of a history by kind; they are the same for every configuration."""
    counts = Counter(fault.kind for fault in draw_history(assumptions, seed))
    return {str(kind): counts[kind] for kind in FaultKind}


def assumed(assumptions: Assumptions) -> list[dict[str, float | str]]:
    """List every assumption with its value, unit and meaning."""
    return [
        {
            "name": assumption_info.name,
            "value": getattr(assumptions, assumption_info.name),
            "unit": assumption_info.unit,
            "meaning": assumption_info.meaning,
        }
        for assumption_info in described()
    ]
