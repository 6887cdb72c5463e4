"""Fleet of one ledger or a few, with faults at chosen times."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.fleet.assumptions import Assumptions
from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.history import Fault, FaultKind
from benchmarks.fleet.simulation import Simulation
from metadata.ids import BookieId

NO_FAULTS: Sequence[Fault] = ()
ONE = Assumptions(
    bookies=8,
    racks=4,
    ledgers=1,
    clients=1,
    days=1,
    write_rate=10,
    ledger_hours=1000,
    retention_hours=1,
)
"""One ledger, created an hour before the measured day and open throughout it."""
WRITTEN_BEFORE = 36_000
CHANGE_S = 1 / ONE.zookeeper_writes + ONE.change_s
RECOVERY_S = 3 / ONE.zookeeper_writes + ONE.recovery_s


def simulation(
    name: str, faults: Sequence[Fault], assumptions: Assumptions = ONE, seed: int = 1
) -> Simulation:
    return Simulation(BY_NAME[name], assumptions, seed, list(faults))


def machines(name: str, assumptions: Assumptions = ONE) -> list[int]:
    """Return the machines that the first ledger is on when the measured time begins."""
    quiet = simulation(name, NO_FAULTS, assumptions)
    quiet.world.agenda.run_until(0)
    names = quiet.world.bookies.on_machine
    return [names.index(each) for each in quiet.world.seats[0].ensemble]


def bookie(number: int) -> BookieId:
    return BookieId(f"bookie-{number:03}-0")


def crash(machine: int, at_s: float, duration_s: float) -> Fault:
    return Fault(at_s, FaultKind.CRASH, machine, duration_s)


def pause(machine: int, at_s: float, duration_s: float) -> Fault:
    return Fault(at_s, FaultKind.PAUSE, machine, duration_s)


def disk_loss(machine: int, at_s: float) -> Fault:
    return Fault(at_s, FaultKind.DISK_LOSS, machine, 4 * 3600)


def with_options(**changes: float) -> Assumptions:
    return replace(ONE, **changes)  # type: ignore[arg-type]  # numbers of the fields' own types
