"""Choices from made results: only a difference beyond the spread decides."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from quire.bench import scenarios
from quire.bench.choosing import NEEDS, Outcome, Recommendation, advise, as_json, recommend
from quire.bench.comparison import Comparison
from quire.bench.durability import LedgerSafety
from quire.bench.figures import BY_NAME
from quire.bench.results import Cell, FailedRun, RunResult
from tests.support.quire.compare.samples import run_of

COPIES = {"all-of-2": 2, "4-of-4-ack-3": 4, "fixed-majority-5": 5}


def sound(
    configuration: str,
    scenario: str,
    repetition: int,
    ms: float,
    *,
    losable: int = 2,
    unacknowledged: int = 0,
) -> RunResult:
    """Return a run in which each append took the same time."""
    copies = COPIES.get(configuration, 3)
    safety = LedgerSafety(7, "closed", 1, 100, ((losable + 1, 100),), copies, 2, 0, 1)
    made = run_of(configuration, scenario, 100.0, repetition, (ms,))
    return replace(made, unacknowledged_count=unacknowledged, safety=(safety,))


def several(configuration: str, scenario: str, values: Sequence[float]) -> list[RunResult]:
    return [sound(configuration, scenario, number, ms) for number, ms in enumerate(values)]


def chosen(runs: Sequence[RunResult | FailedRun], need: str) -> Recommendation:
    return next(
        recommendation
        for recommendation in recommend(Comparison(tuple(runs)))
        if recommendation.need.name == need
    )


def reason(runs: Sequence[RunResult | FailedRun], need: str) -> str:
    return advise(Comparison(tuple(runs)), chosen(runs, need)).reason


def test_a_clear_winner_is_chosen_with_its_figure_and_the_next_one() -> None:
    runs = [
        *several("all-of-3", "steady", (7.0, 7.5, 8.0)),
        *several("majority-3", "steady", (5.0, 5.5, 6.0)),
    ]
    found = chosen(runs, "lowest-latency")
    assert (found.outcome, found.chosen) == (Outcome.CHOSEN, ("majority-3",))
    advice = advise(Comparison(tuple(runs)), found)
    assert advice.answer == "majority of 3"
    assert advice.reason == (
        "By p99: 5.5 (5.0–6.0) ms in steady; next is all of 3: 7.5 (7.0–8.0) ms in steady."
    )
    assert advice.cost == (
        "What it costs: copies of each entry 3, written to logs 210 bytes/entry in steady, "
        "p99 5.5 (5.0–6.0) ms in steady, bookies that may be lost 2 in steady."
    )


def test_within_the_spread_the_fewest_copies_decide() -> None:
    runs = [
        *several("4-of-4-ack-3", "steady", (5.0, 6.0)),
        *several("majority-3", "steady", (5.5, 6.5)),
    ]
    found = chosen(runs, "lowest-latency")
    assert (found.outcome, found.chosen) == (Outcome.CHOSEN, ("majority-3",))
    assert reason(runs, "lowest-latency") == (
        "By p99 the spread shows no difference: 3 of 4: 5.5 (5.0–6.0) ms in steady; "
        "majority of 3: 6.0 (5.5–6.5) ms in steady. "
        "By copies of each entry: 3; next is 3 of 4: 4."
    )


def test_a_tie_is_said() -> None:
    runs = [
        *several("all-of-3", "steady", (5.0, 6.0)),
        *several("majority-3", "steady", (5.5, 6.5)),
    ]
    found = chosen(runs, "lowest-latency")
    assert (found.outcome, found.chosen) == (Outcome.TIE, ("all-of-3", "majority-3"))
    advice = advise(Comparison(tuple(runs)), found)
    assert advice.answer == "all of 3 or majority of 3 (no difference shown)"
    assert advice.cost == ""


def test_one_run_decides_nothing() -> None:
    runs = [sound("all-of-3", "steady", 0, 90.0), sound("majority-3", "steady", 0, 5.0)]
    found = chosen(runs, "lowest-latency")
    assert (found.outcome, found.chosen) == (Outcome.ONE_RUN, ("majority-3",))
    assert "One run has no spread" in reason(runs, "lowest-latency")


def test_the_number_of_copies_needs_one_run() -> None:
    runs = [sound("all-of-3", "killed-bookie", 0, 5.0), sound("all-of-2", "killed-bookie", 0, 90.0)]
    assert chosen(runs, "fewest-copies").chosen == ("all-of-2",)


def test_the_worst_scenario_of_a_need_counts() -> None:
    runs = [
        *several("all-of-3", "killed-bookie", (5.0, 6.0)),
        *several("all-of-3", "slow-bookie", (92.0, 93.0)),
        *several("majority-3", "killed-bookie", (7.0, 8.0)),
        *several("majority-3", "slow-bookie", (3.0, 4.0)),
    ]
    found = chosen(runs, "steady-latency")
    assert found.chosen == ("majority-3",)
    assert "7.5 (7.0–8.0) ms in killed-bookie" in reason(runs, "steady-latency")
    assert "92.5 (92.0–93.0) ms in slow-bookie" in reason(runs, "steady-latency")


@pytest.mark.parametrize(
    ("losable", "unacknowledged", "why"),
    [
        (1, 0, "has entries that two lost bookies take in steady"),
        (2, 7, "leaves appends unacknowledged in two-failures"),
    ],
)
def test_a_need_that_no_configuration_meets(losable: int, unacknowledged: int, why: str) -> None:
    runs: list[RunResult | FailedRun] = [
        *(sound("all-of-2", "steady", each, 1.0, losable=losable) for each in (0, 1)),
        *(
            sound("all-of-2", "two-failures", each, 1.0, unacknowledged=unacknowledged * each)
            for each in (0, 1)
        ),
    ]
    found = chosen(runs, "two-losses")
    assert (found.outcome, found.chosen) == (Outcome.NONE_MEETS, ())
    assert [refusal.reason for refusal in found.refused] == [why]
    assert advise(Comparison(tuple(runs)), found).left_out == f"Left out: all of 2 {why}."


def test_a_configuration_with_a_failed_run_is_left_out() -> None:
    runs: list[RunResult | FailedRun] = [
        *several("all-of-3", "steady", (7.0, 8.0)),
        *several("majority-3", "steady", (5.0, 6.0)),
        FailedRun(Cell("majority-3", "steady", 100.0, 2), "no Java"),
    ]
    found = chosen(runs, "lowest-latency")
    assert found.chosen == ("all-of-3",)
    assert [refusal.reason for refusal in found.refused] == ["has a failed run in steady: no Java"]
    assert reason(runs, "lowest-latency").startswith("It is the only one that meets the need")


def test_what_is_for_comparison_only_is_never_chosen() -> None:
    runs = [
        *several("all-of-3", "steady", (7.0, 8.0)),
        *several("fixed-majority-5", "steady", (1.0, 1.5)),
    ]
    assert chosen(runs, "lowest-latency").chosen == ("all-of-3",)


def test_a_need_without_its_scenarios_names_them() -> None:
    found = chosen(several("all-of-3", "steady", (7.0, 8.0)), "two-losses")
    assert (found.outcome, found.missing) == (Outcome.NOT_MEASURED, ("two-failures",))
    assert "--scenarios two-failures" in reason(
        several("all-of-3", "steady", (7.0, 8.0)), "two-losses"
    )


def test_configurations_are_compared_at_one_rate() -> None:
    slower = [replace(run, cell=replace(run.cell, rate=5.0)) for run in several(
        "all-of-2", "steady", (0.1, 0.2)
    )]  # fmt: skip
    runs = [
        *slower,
        *several("all-of-3", "steady", (7.0, 8.0)),
        *several("majority-3", "steady", (5.0, 6.0)),
    ]
    found = chosen(runs, "lowest-latency")
    assert found.chosen == ("majority-3",)
    assert [refusal.configuration for refusal in found.refused] == ["all-of-2"]


def test_json_has_the_figures() -> None:
    runs = several("all-of-3", "steady", (7.0, 9.0))
    told = as_json(Comparison(tuple(runs)), chosen(runs, "lowest-latency"))
    assert (told["outcome"], told["chosen"]) == ("chosen", ["all-of-3"])
    assert told["figures"] == [
        {
            "figure": "p99_ms",
            "configuration": "all-of-3",
            "scenario": "steady",
            "rate": 100.0,
            "runs": 2,
            "median": 8.0,
            "low": 7.0,
            "high": 9.0,
        }
    ]


def test_needs_name_known_scenarios_and_figures() -> None:
    for need in NEEDS:
        for measure in need.measures:
            assert measure.figure in BY_NAME
            assert all(scenario in scenarios.BY_NAME for scenario in measure.scenarios)
        assert all(condition.figure in BY_NAME for condition in need.conditions)
        assert all(condition.scenario in scenarios.BY_NAME for condition in need.conditions)
