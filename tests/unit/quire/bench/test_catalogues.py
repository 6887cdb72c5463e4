"""The named configurations and scenarios fit together."""

import pytest

from quire.bench import faults as f
from quire.bench.configurations import CONFIGURATIONS
from quire.bench.runner import Plan
from quire.bench.scenarios import SCENARIOS, Scenario

SMALLEST = min(configuration.quorum.ensemble for configuration in CONFIGURATIONS)


def test_names_are_unique() -> None:
    for names in (
        [configuration.name for configuration in CONFIGURATIONS],
        [scenario.name for scenario in SCENARIOS],
    ):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_scenario_fits_into_its_time_and_the_smallest_ensemble(scenario: Scenario) -> None:
    times = [step.at_s for step in scenario.steps]
    assert times == sorted(times)
    assert all(0 < at < scenario.seconds - 1 for at in [*times, scenario.zones_at_s])
    assert all(getattr(step.fault, "member", 0) < SMALLEST for step in scenario.steps)
    assert len({f.describe(step.fault) for step in scenario.steps}) == len(times)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_stopped_processes_resume_before_the_end(scenario: Scenario) -> None:
    done = [type(step.fault) for step in scenario.steps]
    if f.PauseBookie in done:
        assert done.index(f.ResumeBookie) > done.index(f.PauseBookie)
    for slow in (f.SlowBookie, f.SlowZooKeeper, f.DelayNetwork, f.PauseZooKeeper):
        if slow in done:
            assert done.index(f.HealSlowness) > done.index(slow)


def test_scaling_changes_every_time() -> None:
    for scenario in SCENARIOS:
        twice = scenario.scaled(2.0)
        assert twice.seconds == 2 * scenario.seconds
        assert [s.at_s for s in twice.steps] == [2 * s.at_s for s in scenario.steps]
        assert [b.at_s for b in twice.bursts] == [2 * b.at_s for b in scenario.bursts]
        assert [s.fault for s in twice.steps] == [s.fault for s in scenario.steps]


def test_new_repetitions_follow_existing_ones() -> None:
    plan = Plan(("a", "b"), ("s",), (1.0,), 64, repeat=2, scale=1.0, first_repetition=3)
    order = [(cell.repetition, cell.configuration) for cell in plan.cells()]
    assert order == [(3, "b"), (3, "a"), (4, "a"), (4, "b")]


def test_each_repetition_begins_with_another_configuration() -> None:
    plan = Plan(("a", "b", "c"), ("s", "t"), (1.0,), 64, repeat=2, scale=1.0)
    order = [(cell.repetition, cell.scenario, cell.configuration) for cell in plan.cells()]
    assert order == [
        *((0, scenario, name) for scenario in "st" for name in "abc"),
        *((1, scenario, name) for scenario in "st" for name in "bca"),
    ]
