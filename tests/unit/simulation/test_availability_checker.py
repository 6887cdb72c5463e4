"""Tests of the checker of writers' errors: which errors it judges, and when appends are late."""

from collections.abc import Iterator

import pytest

from ledger_client import (
    LedgerClosedError,
    LedgerError,
    LedgerFencedError,
    NotEnoughBookiesError,
    Quorum,
)
from ledger_client.errors import MetadataUnavailableError
from tests.simulation.availability.decision import SERVICE
from tests.simulation.availability.fault_history import FaultHistory
from tests.simulation.checkers.availability import APPEND_S, AvailabilityChecker
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.plan import make_plan

FIVE_BOOKIES_SEED = 8
LEDGER_ID = 7
HOST = "writer-0"
QUORUM = Quorum(3, 3, 2)


class Run:
    """A checker with one writer, without a cluster."""

    def __init__(self) -> None:
        self.loop = SimulationLoop(1)
        self.model = Model(self.loop)
        self.history = FaultHistory(self.loop.time)
        self.damaged: dict[str, None] = {}
        plan = make_plan(FIVE_BOOKIES_SEED)
        assert plan.bookie_count > QUORUM.ensemble
        self.spares = plan.bookie_count - QUORUM.ensemble
        self.checker = AvailabilityChecker(self.model, plan, self.history, self.damaged)
        self.checker.on_writer(self.model.ledger(LEDGER_ID), HOST, QUORUM.spec)

    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.loop._now += seconds

    @property
    def violation_count(self) -> int:
        """Return the number of violations."""
        return len(self.model.violations)


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.loop.close()


def shortage() -> NotEnoughBookiesError:
    return NotEnoughBookiesError("no replacement", needed=1, seen=0, excluded={})


def test_the_end_of_a_writer_is_judged_once(run: Run) -> None:
    run.checker.on_ended(LEDGER_ID, shortage())
    assert run.violation_count == 1
    run.checker.on_append_failed(LEDGER_ID, shortage(), None, has_pending=False)
    run.checker.on_close_failed(LEDGER_ID, shortage())
    assert run.violation_count == 1
    assert "append of writer-0 failed without need: NotEnoughBookiesError" in str(
        run.model.violations[0]
    )


def test_faults_of_all_spares_and_one_member_explain_a_shortage(run: Run) -> None:
    for number in range(run.spares):
        run.history.add(f"bookie-{number}")
    run.checker.on_create_failed(HOST, QUORUM, shortage())
    assert run.violation_count == 1
    run.damaged[f"bookie-{run.spares}"] = None
    run.checker.on_create_failed(HOST, QUORUM, shortage())
    assert run.violation_count == 1


def test_an_error_of_an_append_or_a_close_is_judged(run: Run) -> None:
    run.history.add(SERVICE)
    run.checker.on_close_failed(LEDGER_ID, MetadataUnavailableError("late"))
    assert run.violation_count == 0
    run.checker.on_close_failed(LEDGER_ID, LedgerFencedError("fenced"))
    run.checker.on_append_failed(LEDGER_ID, LedgerError("broken"), None, has_pending=True)
    assert run.violation_count == 2


def test_appends_are_closed_only_after_the_caller_closes(run: Run) -> None:
    run.checker.on_append_failed(LEDGER_ID, LedgerClosedError("closed"), None, has_pending=True)
    assert run.violation_count == 1
    run.checker.on_ending(LEDGER_ID)
    run.checker.on_append_failed(LEDGER_ID, LedgerClosedError("closed"), None, has_pending=True)
    assert run.violation_count == 1


@pytest.mark.parametrize("late_s", [-1.0, 1.0])
def test_an_append_ends_within_the_bound_after_healing(run: Run, late_s: float) -> None:
    append = run.checker.begin_append(LEDGER_ID, lambda: True)
    run.wait(1_000.0)
    run.checker.healed_at = run.loop.time()
    run.wait(APPEND_S + late_s)
    run.checker.end_append(append)
    assert run.violation_count == (late_s > 0)


@pytest.mark.parametrize("is_alive", [False, True])
def test_an_append_that_never_ends_is_reported_for_a_living_process(
    run: Run, *, is_alive: bool
) -> None:
    run.checker.begin_append(LEDGER_ID, lambda: is_alive)
    run.checker.healed_at = run.loop.time()
    run.wait(APPEND_S + 1.0)
    run.checker.on_work_ended()
    assert run.violation_count == is_alive


def test_an_append_may_wait_where_too_few_bookies_are_undamaged(run: Run) -> None:
    append = run.checker.begin_append(LEDGER_ID, lambda: True)
    run.damaged.update(dict.fromkeys(f"bookie-{number}" for number in range(run.spares + 1)))
    run.checker.healed_at = run.loop.time()
    run.wait(APPEND_S + 1.0)
    run.checker.end_append(append)
    assert run.violation_count == 0
