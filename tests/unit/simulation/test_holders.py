"""Tests of the checker that reports two live processes under one bookie id."""

from tests.simulation.checkers.bookie_answers import HoldersChecker
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model


def test_a_second_live_process_under_the_same_id_is_reported() -> None:
    loop = SimulationLoop(0)
    model, running = Model(loop), {1, 2, 3}
    checker = HoldersChecker(model, running.__contains__)
    checker.on_greeted("bookie-a", 1)
    checker.on_greeted("bookie-a", 1)
    checker.on_greeted("bookie-b", 2)
    running.remove(1)
    checker.on_greeted("bookie-a", 3)
    assert not model.violations
    checker.on_greeted("bookie-b", 3)
    assert [violation.checker for violation in model.violations] == ["holders"]
    loop.close()
