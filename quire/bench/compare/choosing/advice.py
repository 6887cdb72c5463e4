"""The choice for each need, in words and as JSON.

Leaves the choice to `quire.bench.compare.choosing.recommendation`.

Invariants: pure; each sentence names the figure, its scenario and its spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from quire.bench.compare import configurations, figures
from quire.bench.compare.choosing.evidence import Evidence, worst
from quire.bench.compare.choosing.needs import ONE_BOOKIE_FAILS
from quire.bench.compare.choosing.recommendation import Outcome, Recommendation, Step
from quire.bench.compare.comparison import Comparison

ANSWERS: Final = {
    Outcome.TIE: "no difference shown",
    Outcome.ONE_RUN: "not decided",
    Outcome.NONE_MEETS: "none of these configurations",
    Outcome.NOT_MEASURED: "not measured",
}
COSTS: Final = (
    ("copies", ("steady", "killed-bookie", "two-failures")),
    ("written", ("steady",)),
    ("p99_ms", ("steady",)),
    ("p999_ms", ONE_BOOKIE_FAILS),
    ("max_ms", ("two-failures",)),
    ("losable", ("steady",)),
)
"""Figures that say what a choice costs: the worst of some scenarios."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The choice for one need, in words."""

    title: str
    answer: str
    reason: str
    cost: str = ""
    left_out: str = ""


def advise(comparison: Comparison, recommendation: Recommendation) -> Advice:
    """Say what a recommendation says."""
    chosen = recommendation.chosen
    answer = ANSWERS.get(recommendation.outcome, "")
    if recommendation.outcome is Outcome.CHOSEN:
        answer = title_of(chosen[0])
    elif recommendation.outcome is Outcome.TIE:
        answer = f"{_either(chosen)} ({answer})"
    cost = _costs(comparison, chosen[0]) if recommendation.outcome is Outcome.CHOSEN else ""
    refused = "; ".join(
        f"{title_of(each.configuration)} {each.reason}" for each in recommendation.refused
    )
    return Advice(
        recommendation.need.title,
        answer,
        _reason(recommendation),
        f"What it costs: {cost}." if cost else "",
        f"Left out: {refused}." if refused else "",
    )


def as_json(comparison: Comparison, recommendation: Recommendation) -> dict[str, Any]:
    """Return a recommendation as JSON values, with the figures that support it."""
    advice = advise(comparison, recommendation)
    return {
        "need": recommendation.need.name,
        "outcome": recommendation.outcome.name.lower(),
        "chosen": list(recommendation.chosen),
        "answer": advice.answer,
        "reason": advice.reason,
        "cost": advice.cost,
        "figures": [
            {
                "figure": step.measure.figure,
                "configuration": name,
                "scenario": each.scenario,
                "rate": each.rate,
                "runs": each.spread.count,
                "median": each.spread.median,
                "low": each.spread.low,
                "high": each.spread.high,
            }
            for step in recommendation.steps
            for name, each in step.found.items()
        ],
        "left_out": [
            {"configuration": each.configuration, "reason": each.reason}
            for each in recommendation.refused
        ],
        "missing_scenarios": list(recommendation.missing),
    }


def title_of(configuration: str) -> str:
    """Return the name of a configuration in words; its name, if only another release knows it."""
    known = configurations.BY_NAME.get(configuration)
    return configuration if known is None else known.title


def _reason(recommendation: Recommendation) -> str:
    if recommendation.outcome is Outcome.NOT_MEASURED:
        names = ",".join(recommendation.missing)
        return f"Run `quire bench compare --scenarios {names}` with the same --out."
    if recommendation.outcome is Outcome.NONE_MEETS:
        return "Each has a reason against it."
    steps = recommendation.steps
    if recommendation.outcome is Outcome.ONE_RUN:
        best, last = recommendation.chosen[0], steps[-1]
        return (
            f"The best {figures.BY_NAME[last.measure.figure].title} is that of {title_of(best)}: "
            f"{_value(last, best)}. One run has no spread, so it shows no difference: run "
            "`quire bench compare --repeat 3`."
        )
    return " ".join(_step(each) for each in steps)


def _step(step: Step) -> str:
    if len(step.left) == 1:
        return _winner(step)
    figure = figures.BY_NAME[step.measure.figure]
    values = "; ".join(f"{title_of(name)}: {_value(step, name)}" for name in step.left)
    if figure.is_exact:
        return f"By {figure.title} they are equal: {values}."
    return f"By {figure.title} the spread shows no difference: {values}."


def _winner(step: Step) -> str:
    figure, best = figures.BY_NAME[step.measure.figure], step.left[0]
    others = [each for each in step.found if each != best]
    text = f"{figure.title}: {_value(step, best)}"
    if not others:
        return f"It is the only one that meets the need; {text}."
    sign = -1.0 if figure.more_is_better else 1.0
    second = min(others, key=lambda name: sign * step.found[name].spread.median)
    return f"By {text}; next is {title_of(second)}: {_value(step, second)}."


def _value(step: Step, name: str) -> str:
    return _shown(step.measure.figure, step.found[name])


def _shown(name: str, each: Evidence) -> str:
    figure = figures.BY_NAME[name]
    text = figures.show(each.spread, figure.digits)
    if figure.is_exact:
        return text
    unit = f" {figure.unit}" if figure.unit else ""
    return f"{text}{unit} in {each.scenario}"


def _costs(comparison: Comparison, name: str) -> str:
    parts = []
    for figure, scenarios in COSTS:
        found = worst(comparison, scenarios, name, figure)
        if found is not None:
            parts.append(f"{figures.BY_NAME[figure].title} {_shown(figure, found)}")
    return ", ".join(parts)


def _either(names: Sequence[str]) -> str:
    titles = [title_of(each) for each in names]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} or {titles[-1]}"
