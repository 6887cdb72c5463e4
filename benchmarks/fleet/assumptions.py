"""Assumptions of a fleet simulation, each with its default, unit and meaning.

Leaves their use to the modules of the model, and the options made from this list to `command`.

Invariants: one value per assumption for a complete run; the model has no numbers elsewhere.
"""

from dataclasses import dataclass, field, fields
from math import inf
from typing import Final

from metadata.repair.settings import DEFAULTS
from metadata.store.interface import SESSION_TIMEOUT_S
from quire.repair.worker import LEDGERS_AT_ONCE

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
MONTH_S: Final = 30 * DAY_S
"""Length of a month in every "per month" rate."""
GIBIBYTE: Final = 2**30
MEBIBYTE: Final = 2**20
MEGABYTE: Final = 1e6
"""Unit of the limits of repair, as in `quire repair throttle`."""


def _count(default: int, unit: str, meaning: str) -> int:
    value: int = field(default=default, metadata={"unit": unit, "meaning": meaning, "least": 1})
    return value


def _amount(default: float, unit: str, meaning: str, *, least: float = 0.0) -> float:
    metadata = {"unit": unit, "meaning": meaning, "least": least}
    value: float = field(default=default, metadata=metadata)
    return value


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The fleet, its load, its failures, and its reaction times."""

    # The fleet and its load
    bookies: int = _count(100, "bookies", "size of the fleet")
    racks: int = _count(10, "racks", "number of racks; bookies are spread evenly")
    ledgers: int = _count(
        10_000, "ledgers", "number written at the same time, each followed by another"
    )
    clients: int = _count(
        100, "processes", "number of writing processes; ledgers are spread evenly"
    )
    days: float = _amount(30.0, "days", "length of the measured time", least=0.01)
    write_rate: float = _amount(10.0, "entries/s", "rate of appends to each ledger", least=0.001)
    entry_bytes: int = _count(1024, "bytes", "size of an entry")
    ledger_hours: float = _amount(
        24.0, "hours", "time until a ledger is closed and the next one begins", least=0.1
    )
    retention_hours: float = _amount(
        72.0, "hours", "time until a closed ledger is deleted", least=0.1
    )

    # Failures
    crashes: float = _amount(1.0, "per bookie and month", "crashes of a bookie, disk intact")
    restart_s: float = _amount(300.0, "s, mean", "time until a crashed bookie is back")
    disk_losses: float = _amount(0.02, "per bookie and month", "losses of all data of a bookie")
    replace_hours: float = _amount(4.0, "hours", "time until an empty bookie replaces a lost one")
    pauses: float = _amount(4.0, "per bookie and month", "pauses of a bookie, which then continues")
    pause_s: float = _amount(10.0, "s, mean", "length of a pause")
    slow_periods: float = _amount(
        2.0, "per bookie and month", "periods of late responses of a bookie, before timeouts"
    )
    slow_s: float = _amount(600.0, "s, mean", "length of a slow period")
    rack_failures: float = _amount(
        0.0, "per rack and month", "crashes of all bookies of a rack at once"
    )
    rack_down_s: float = _amount(600.0, "s, mean", "time until a failed rack is back")
    zookeeper_outages: float = _amount(
        2.0, "per month", "outages in which metadata is neither read nor written"
    )
    zookeeper_outage_s: float = _amount(30.0, "s, mean", "length of an outage of ZooKeeper")
    client_crashes: float = _amount(1.0, "per process and month", "crashes of a writing process")

    # Reactions
    detect_crash_s: float = _amount(
        0.5, "s", "time until a writer treats a crashed bookie as failed"
    )
    detect_pause_s: float = _amount(
        0.5, "s", "time until a writer suspects a silent bookie (rule 5.7)"
    )
    quarantine_s: float = _amount(60.0, "s", "time for which a suspected bookie is not chosen")
    change_s: float = _amount(
        0.01, "s", "time to store an ensemble change and resend to new members"
    )
    zookeeper_writes: float = _amount(
        2000.0, "per s", "metadata writes by all processes", least=1.0
    )
    takeover_s: float = _amount(
        10.0, "s", "time until another process takes over a dead writer's ledgers"
    )
    recovery_s: float = _amount(0.1, "s", "time to fence, read and write back the end of a ledger")
    rejoin_s: float = _amount(1.0, "s", "in-sync: time until a member that is back rejoins")
    spare_after_s: float = _amount(
        60.0, "s", "in-sync: time until a spare replaces a member that left"
    )
    operator_hours: float = _amount(
        1.0, "hours", "fixed: time until a member with a lost disk is replaced"
    )
    give_up_hours: float = _amount(24.0, "hours", "time until a hopeless recovery is abandoned")
    copy_rate: float = _amount(
        32.0, "MiB/s", "rate at which a member that missed entries catches up", least=0.001
    )

    # Repair. The defaults are those of the product, and what benchmarks/repair measured.
    repair_detect_s: float = _amount(
        SESSION_TIMEOUT_S, "s", "time until the auditor misses a bookie: its session's timeout"
    )
    lost_after_s: float = _amount(
        DEFAULTS.lost_after_s, "s", "time that a bookie is missed before its copies are made again"
    )
    urgent_after_s: float = _amount(
        DEFAULTS.urgent_after_s, "s", "the same for entries with one good copy left"
    )
    repair_rate: float = _amount(
        DEFAULTS.bytes_per_s / MEGABYTE, "MB/s", "ceiling of all repair; 0: none"
    )
    repair_rate_per_bookie: float = _amount(
        DEFAULTS.bookie_bytes_per_s / MEGABYTE, "MB/s", "ceiling of repair to one bookie; 0: none"
    )
    repair_rate_per_source: float = _amount(
        DEFAULTS.source_bytes_per_s / MEGABYTE, "MB/s", "ceiling of repair from one bookie; 0: none"
    )
    worker_rate: float = _amount(
        233.0, "MB/s", "what one worker copies, reads back and swaps without a ceiling", least=0.001
    )
    repair_ledger_s: float = _amount(0.5, "s", "least time of one copy, however small it is")
    ledgers_per_worker: int = _count(
        LEDGERS_AT_ONCE, "ledgers", "ledgers that one worker repairs at once"
    )

    @property
    def end_s(self) -> float:
        """End of the measured time, which begins at 0."""
        return self.days * DAY_S

    @property
    def copy_bytes_per_s(self) -> float:
        """Bytes per second of a member that catches up."""
        return self.copy_rate * MEBIBYTE

    @property
    def worker_bytes_per_s(self) -> float:
        """Bytes per second of one worker of repair without a ceiling."""
        return self.worker_rate * MEGABYTE

    @property
    def repair_bytes_per_s(self) -> float:
        """Ceiling of all repair."""
        return self.repair_rate * MEGABYTE or inf

    @property
    def bookie_bytes_per_s(self) -> float:
        """Ceiling of repair to one bookie."""
        return self.repair_rate_per_bookie * MEGABYTE or inf

    @property
    def source_bytes_per_s(self) -> float:
        """Ceiling of repair from one bookie."""
        return self.repair_rate_per_source * MEGABYTE or inf


@dataclass(frozen=True, slots=True)
class AssumptionInfo:
    """One assumption as the command line shows it."""

    name: str
    default: int | float
    unit: str
    meaning: str
    least: float


def described() -> list[AssumptionInfo]:
    """List every assumption, in the order above."""
    defaults = Assumptions()
    return [
        AssumptionInfo(
            one_field.name,
            getattr(defaults, one_field.name),
            one_field.metadata["unit"],
            one_field.metadata["meaning"],
            one_field.metadata["least"],
        )
        for one_field in fields(Assumptions)
    ]
