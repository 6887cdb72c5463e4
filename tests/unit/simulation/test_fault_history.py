"""Tests of the record of faults by which errors of writers are judged."""

import math

import pytest

from ledger_client.protocol import append
from tests.simulation.availability.decision import FaultTime, link_of
from tests.simulation.availability.fault_history import DROPPED_AT, KEPT_S, SLOW_S, FaultHistory
from tests.simulation.loop import SimulationLoop
from tests.simulation.network import Network, NetworkOdds
from tests.simulation.run import run_seed

CHANGES_SEED = 3
"""By its plan: a writer changes its ensemble twice."""


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_fault_lasts_until_its_first_end() -> None:
    clock = Clock()
    history = FaultHistory(clock)
    fault = history.begin("a")
    assert history.recent() == [FaultTime("a", 0.0, math.inf)]
    for clock.now in (2.0, 3.0):
        history.end(fault)
    history.end(None)
    assert history.recent() == [FaultTime("a", 0.0, 2.0)]


def test_a_fault_of_known_length_is_ended_by_time() -> None:
    clock = Clock()
    history = FaultHistory(clock)
    clock.now = 1.0
    history.add("a", 5.0)
    history.add("b")
    assert history.recent() == [FaultTime("a", 1.0, 6.0), FaultTime("b", 1.0, 1.0)]


def test_a_block_that_fails_ends_its_fault() -> None:
    clock = Clock()
    history = FaultHistory(clock)

    def fail() -> None:
        with history.lasting("a"):
            clock.now = 4.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert history.recent() == [FaultTime("a", 0.0, 4.0)]


def test_short_delays_are_no_faults() -> None:
    history = FaultHistory(Clock())
    history.note_delay("a", SLOW_S / 2)
    history.note_delay("b", SLOW_S)
    assert history.recent() == [FaultTime("b", 0.0, SLOW_S)]


def test_old_faults_are_dropped_and_lasting_ones_kept() -> None:
    clock = Clock()
    history = FaultHistory(clock)
    history.begin("lasting")
    for _ in range(3 * DROPPED_AT):
        history.add("old")
    clock.now = KEPT_S + 1.0
    assert history.recent() == [FaultTime("lasting", 0.0, math.inf)]


def test_overlapping_cuts_are_one_fault_of_the_way() -> None:
    loop = SimulationLoop(1)
    network = Network(loop, 1, NetworkOdds())
    network.cut("a", "b")
    network.cut("a", "b")
    network.heal("a", "b")
    assert network.faults.recent() == [FaultTime(link_of("b", "a"), 0.0, math.inf)]
    network.heal("a", "b")
    assert network.faults.recent() == [FaultTime(link_of("a", "b"), 0.0, 0.0)]
    loop.close()


@pytest.mark.long
def test_a_writer_that_dies_at_its_second_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append, "FRAGMENTS_MAX", 2)
    violations = run_seed(CHANGES_SEED).violations
    assert "failed without need: TooManyFragmentsError" in violations[0]
