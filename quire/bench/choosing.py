"""The choice of a configuration for each need, from measured results, in words and as JSON.

NEEDS says what a configuration must do for each need, and which figure decides.

Invariants: pure; nothing is chosen from runs of a busy machine or of a late generator;
configurations are compared at the same rate only; a difference within the spread never decides; one
run of a figure that varies never decides; a configuration with a failed run, or for comparison
only, is never chosen; each sentence names the figure, its scenario and its spread.

Source: docs/which-quorum.md, "Which to choose", "The recommendation".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from quire.bench import configurations, figures
from quire.bench.comparison import LOAD, Comparison
from quire.bench.figures import Spread, Verdict, verdicts
from quire.bench.results import FailedRun, RunResult

ONE_BOOKIE_FAILS: Final = ("slow-bookie", "slow-network", "paused-bookie", "killed-bookie")
"""Scenarios in which one bookie fails, or is slow."""
LATE_MS_MAX: Final = 50.0
"""Delay of the load generator above which its latencies are its own."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What every run of a scenario must show."""

    scenario: str
    figure: str
    limit: float
    says: str
    """What a configuration that does not meet it does."""
    is_minimum: bool = False
    """Whether the figure must be at least the limit, and not at most."""

    def is_met_by(self, value: float) -> bool:
        """Return whether a value meets it."""
        return value >= self.limit if self.is_minimum else value <= self.limit


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that decides, by its worst value in some scenarios."""

    figure: str
    scenarios: tuple[str, ...]
    """At least one of them must have been run."""


@dataclass(frozen=True, slots=True)
class ReplicationNeed:
    """What some people need from a way to replicate."""

    name: str
    title: str
    measures: tuple[Measure, ...]
    """The first one decides; each later one, among those that the earlier ones do not separate."""
    conditions: tuple[Condition, ...] = ()


def _keeps_on(scenario: str) -> tuple[Condition, Condition]:
    return (
        Condition(scenario, "lost", 0, "loses acknowledged entries"),
        Condition(scenario, "unacknowledged", 0, "leaves appends unacknowledged"),
    )


NEEDS: Final = (
    ReplicationNeed(
        "lowest-latency",
        "Lowest latency",
        (Measure("p99_ms", ("steady",)), Measure("copies", ("steady",))),
    ),
    ReplicationNeed(
        "steady-latency",
        "Lowest latency while one bookie fails",
        (Measure("p999_ms", ONE_BOOKIE_FAILS), Measure("copies", ONE_BOOKIE_FAILS)),
    ),
    ReplicationNeed(
        "two-losses",
        "Survives two losses",
        (Measure("max_ms", ("two-failures",)), Measure("copies", ("two-failures",))),
        (
            Condition(
                "steady", "losable", 2, "has entries that two lost bookies take", is_minimum=True
            ),
            *_keeps_on("two-failures"),
        ),
    ),
    ReplicationNeed(
        "fewest-copies",
        "Fewest copies",
        (Measure("copies", ("killed-bookie",)), Measure("max_ms", ("killed-bookie",))),
        _keeps_on("killed-bookie"),
    ),
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A figure of one configuration, and the scenario that it comes from."""

    scenario: str
    rate: float
    spread: Spread


def rate_of(comparison: Comparison, scenario: str) -> float | None:
    """Return the rate at which most configurations ran a scenario, and the lowest such rate; None
    if there is no run of it.
    """
    counts = {
        rate: len({run.cell.configuration for run in _runs(comparison, scenario, rate)})
        for rate in comparison.rates
    }
    rates = [rate for rate, count in counts.items() if count]
    return min(rates, key=lambda rate: (-counts[rate], rate), default=None)


def runs_of(comparison: Comparison, scenario: str, configuration: str) -> list[RunResult]:
    """Return the repetitions of a configuration, at the rate of its scenario."""
    rate = rate_of(comparison, scenario)
    return [] if rate is None else comparison.of(scenario, configuration, rate)


def failures_of(comparison: Comparison, scenario: str, configuration: str) -> list[FailedRun]:
    """Return the failed runs of a configuration, at the rate of its scenario."""
    rate = rate_of(comparison, scenario)
    runs = [] if rate is None else _runs(comparison, scenario, rate)
    failed = [run for run in runs if isinstance(run, FailedRun)]
    return [run for run in failed if run.cell.configuration == configuration]


def worst(
    comparison: Comparison, scenarios: Sequence[str], configuration: str, name: str
) -> Evidence | None:
    """Return a figure in the scenario in which its median is worst; None if no run has it."""
    figure = figures.BY_NAME[name]
    sign = -1.0 if figure.more_is_better else 1.0
    evidence = []
    for scenario in scenarios:
        runs = runs_of(comparison, scenario, configuration)
        spread = figures.summarise(runs, figure)
        if spread is not None:
            evidence.append(Evidence(scenario, runs[0].cell.rate, spread))
    return max(evidence, key=lambda item: sign * item.spread.median, default=None)


def _runs(comparison: Comparison, scenario: str, rate: float) -> list[RunResult | FailedRun]:
    cells = ((run, run.cell) for run in comparison.runs)
    return [run for run, cell in cells if (cell.scenario, cell.rate) == (scenario, rate)]


class Outcome(StrEnum):
    """How far the results decide."""

    CHOSEN = "chosen"
    TIE = "no difference shown"
    ONE_RUN = "one run: spread unknown"
    NONE_MEETS = "no configuration meets the need"
    NOT_MEASURED = "not measured"
    TOO_FEW = "too few appends"
    DOUBTFUL = "not decided: the machine was not calm"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration that cannot be chosen, and the reason."""

    configuration: str
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """The comparison by one measure."""

    measure: Measure
    evidence: Mapping[str, Evidence]
    """The figure of each configuration that was compared."""
    left: tuple[str, ...]
    """Configurations that are not shown to be worse than the best; the best is first."""
    has_spread: bool
    """Whether the figure was measured often enough to decide."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The choice for one need."""

    need: ReplicationNeed
    outcome: Outcome
    chosen: tuple[str, ...] = ()
    """One configuration, or those between which the results do not decide."""
    steps: tuple[Step, ...] = ()
    refused: tuple[Refusal, ...] = ()
    missing: tuple[str, ...] = ()
    """Scenarios that must be run first."""


def recommend(
    comparison: Comparison, needs: Sequence[ReplicationNeed] = NEEDS
) -> list[Recommendation]:
    """Return the choice for each need, in order; none is made while there are doubts."""
    if doubts(comparison):
        return [Recommendation(need, Outcome.DOUBTFUL) for need in needs]
    return [_for_need(comparison, need) for need in needs]


def doubts(comparison: Comparison) -> list[str]:
    """Say why the figures show the machine rather than the configurations; empty if they do not."""
    said = []
    load, cores = comparison.machine.get(LOAD), comparison.machine.get("cores", "")
    if load and cores.isdecimal() and float(load.split()[0]) > int(cores):
        said.append(
            f"The machine was busy when the runs began: a load average of {load.split()[0]} on "
            f"{cores} cores. Run it again with nothing else running."
        )
    runs = [run for run in comparison.runs if isinstance(run, RunResult)]
    late = [run for run in runs if run.late_ms_max > LATE_MS_MAX]
    if late:
        worst_run = max(late, key=lambda run: run.late_ms_max)
        said.append(
            f"The load generator itself was late in {len(late)} of {len(runs)} runs, by up to "
            f"{worst_run.late_ms_max:,.0f} ms ({worst_run.cell.scenario}, "
            f"{title_of(worst_run.cell.configuration)}). Use a lower --rate, or a faster machine."
        )
    return said


def _for_need(comparison: Comparison, need: ReplicationNeed) -> Recommendation:
    missing = _missing(comparison, need)
    if missing:
        return Recommendation(need, Outcome.NOT_MEASURED, missing=missing)
    names, refused = [], []
    for name in comparison.configurations:
        reason = _why_refused(comparison, need, name)
        if reason:
            refused.append(Refusal(name, reason))
        else:
            names.append(name)
    if not names:
        return Recommendation(need, Outcome.NONE_MEETS, refused=tuple(refused))
    steps: list[Step] = []
    for measure in need.measures:
        step = _step(comparison, measure, names)
        if len(step.evidence) < len(names):
            lacking = tuple(name for name in names if name not in step.evidence)
            return Recommendation(need, Outcome.TOO_FEW, lacking, (*steps, step), tuple(refused))
        steps.append(step)
        names = list(steps[-1].left)
        if len(names) == 1 or not steps[-1].has_spread:
            break
    outcome = Outcome.CHOSEN if len(names) == 1 else Outcome.TIE
    if not steps[-1].has_spread:
        outcome, names = Outcome.ONE_RUN, names[:1]
    return Recommendation(need, outcome, tuple(names), tuple(steps), tuple(refused))


def _missing(comparison: Comparison, need: ReplicationNeed) -> tuple[str, ...]:
    wanted = [condition.scenario for condition in need.conditions]
    for measure in need.measures:
        if not _scenarios(comparison, measure):
            wanted += measure.scenarios
    return tuple(named for named in dict.fromkeys(wanted) if named not in comparison.scenarios)


def _scenarios(comparison: Comparison, measure: Measure) -> list[str]:
    return [scenario for scenario in measure.scenarios if scenario in comparison.scenarios]


def _why_refused(comparison: Comparison, need: ReplicationNeed, name: str) -> str:
    """Return why a configuration cannot be chosen; empty if it can."""
    if not configurations.BY_NAME[name].is_for_use:
        return "is for comparison only"
    used = [condition.scenario for condition in need.conditions]
    for measure in need.measures:
        used += _scenarios(comparison, measure)
    for scenario in dict.fromkeys(used):
        failed = failures_of(comparison, scenario, name)
        if failed:
            return f"has a failed run in {scenario}: {failed[0].reason}"
        if not runs_of(comparison, scenario, name):
            return f"was not run in {scenario} at the same rate"
    broken = (bound for bound in need.conditions if not _is_met(comparison, bound, name))
    return next((f"{condition.says} in {condition.scenario}" for condition in broken), "")


def _is_met(comparison: Comparison, condition: Condition, name: str) -> bool:
    value_of = figures.BY_NAME[condition.figure].of
    values = [value_of(run) for run in runs_of(comparison, condition.scenario, name)]
    return all(value is not None and condition.is_met_by(value) for value in values)


def _step(comparison: Comparison, measure: Measure, names: Sequence[str]) -> Step:
    figure = figures.BY_NAME[measure.figure]
    scenarios = _scenarios(comparison, measure)
    evidence = {name: worst(comparison, scenarios, name, figure.name) for name in names}
    known = {name: item for name, item in evidence.items() if item is not None}
    spreads = {name: item.spread for name, item in known.items()}
    sign = -1.0 if figure.more_is_better else 1.0
    ordered = sorted(known, key=lambda name: sign * spreads[name].median)
    if figure.is_exact:
        left = [name for name in ordered if spreads[name].median == spreads[ordered[0]].median]
        return Step(measure, known, tuple(left), has_spread=True)
    judged = verdicts(spreads, more_is_better=figure.more_is_better)
    has_spread = len(known) == 1 or Verdict.UNKNOWN not in judged.values()
    left = [name for name in ordered if judged[name] is not Verdict.WORSE]
    return Step(measure, known, tuple(left), has_spread=has_spread)


ANSWERS: Final = {
    Outcome.TIE: "no difference shown",
    Outcome.ONE_RUN: "not decided",
    Outcome.NONE_MEETS: "none of these configurations",
    Outcome.NOT_MEASURED: "not measured",
    Outcome.TOO_FEW: "not measured",
    Outcome.DOUBTFUL: "not decided",
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
    rule: str
    """Whose rule the chosen configuration is; empty unless one is chosen."""
    reason: str
    cost: str = ""
    left_out: str = ""


def advise(comparison: Comparison, recommendation: Recommendation) -> Advice:
    """Say what a recommendation says."""
    chosen = recommendation.chosen
    answer, rule = ANSWERS.get(recommendation.outcome, ""), ""
    if recommendation.outcome is Outcome.CHOSEN:
        answer, rule = title_of(chosen[0]), configurations.BY_NAME[chosen[0]].rule
    elif recommendation.outcome is Outcome.TIE:
        answer = f"{_either(chosen)} ({answer})"
    cost = _costs(comparison, chosen[0]) if recommendation.outcome is Outcome.CHOSEN else ""
    refused = "; ".join(
        f"{title_of(refusal.configuration)} {refusal.reason}" for refusal in recommendation.refused
    )
    return Advice(
        recommendation.need.title,
        answer,
        rule,
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
                "scenario": evidence.scenario,
                "rate": evidence.rate,
                "runs": evidence.spread.count,
                "median": evidence.spread.median,
                "low": evidence.spread.low,
                "high": evidence.spread.high,
            }
            for step in recommendation.steps
            for name, evidence in step.evidence.items()
        ],
        "left_out": [
            {"configuration": refusal.configuration, "reason": refusal.reason}
            for refusal in recommendation.refused
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
    if recommendation.outcome is Outcome.DOUBTFUL:
        return ""
    if recommendation.outcome is Outcome.TOO_FEW:
        figure = figures.BY_NAME[recommendation.steps[-1].measure.figure]
        return (
            f"The runs have too few appends for {figure.title}: use a longer --seconds or a higher "
            "--rate."
        )
    steps = recommendation.steps
    if recommendation.outcome is Outcome.ONE_RUN:
        best, last = recommendation.chosen[0], steps[-1]
        return (
            f"The best {figures.BY_NAME[last.measure.figure].title} is that of {title_of(best)}: "
            f"{_value(last, best)}. One run has no spread, so it shows no difference: run "
            "`quire bench compare --repeat 3`."
        )
    return " ".join(_step_text(step) for step in steps)


def _step_text(step: Step) -> str:
    if len(step.left) == 1:
        return _winner(step)
    figure = figures.BY_NAME[step.measure.figure]
    values = "; ".join(f"{title_of(name)}: {_value(step, name)}" for name in step.left)
    if figure.is_exact:
        return f"By {figure.title} they are equal: {values}."
    return f"By {figure.title} the spread shows no difference: {values}."


def _winner(step: Step) -> str:
    figure, best = figures.BY_NAME[step.measure.figure], step.left[0]
    others = [other for other in step.evidence if other != best]
    text = f"{figure.title}: {_value(step, best)}"
    if not others:
        return f"It is the only one that meets the need; {text}."
    sign = -1.0 if figure.more_is_better else 1.0
    second = min(others, key=lambda name: sign * step.evidence[name].spread.median)
    return f"By {text}; next is {title_of(second)}: {_value(step, second)}."


def _value(step: Step, name: str) -> str:
    return _shown(step.measure.figure, step.evidence[name])


def _shown(name: str, evidence: Evidence) -> str:
    figure = figures.BY_NAME[name]
    text = figures.show(evidence.spread, figure.digits)
    if figure.is_exact:
        return text
    unit = f" {figure.unit}" if figure.unit else ""
    return f"{text}{unit} in {evidence.scenario}"


def _costs(comparison: Comparison, name: str) -> str:
    parts = []
    for figure, scenarios in COSTS:
        evidence = worst(comparison, scenarios, name, figure)
        if evidence is not None:
            parts.append(f"{figures.BY_NAME[figure].title} {_shown(figure, evidence)}")
    return ", ".join(parts)


def _either(names: Sequence[str]) -> str:
    titles = [title_of(name) for name in names]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} or {titles[-1]}"
