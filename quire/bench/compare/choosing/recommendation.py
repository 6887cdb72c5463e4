"""The choice of a configuration for each need, from measured results.

Leaves needs to `quire.bench.compare.choosing.needs`, and words to
`quire.bench.compare.choosing.advice`.

Invariants: pure; a difference within the spread never decides; one run of a figure that varies
never decides; a configuration with a failed run, or for comparison only, is never chosen.

Source: docs/which-quorum.md, "The recommendation".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from quire.bench.compare import configurations, figures
from quire.bench.compare.choosing.evidence import Evidence, failures_of, runs_of, worst
from quire.bench.compare.choosing.needs import NEEDS, Condition, Measure, Need
from quire.bench.compare.comparison import Comparison
from quire.bench.compare.spreads import Verdict, verdicts


class Outcome(StrEnum):
    """How far the results decide."""

    CHOSEN = "chosen"
    TIE = "no difference shown"
    ONE_RUN = "one run: spread unknown"
    NONE_MEETS = "no configuration meets the need"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration that cannot be chosen, and the reason."""

    configuration: str
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """The comparison by one measure."""

    measure: Measure
    found: Mapping[str, Evidence]
    """The figure of each configuration that was compared."""
    left: tuple[str, ...]
    """Configurations that are not shown to be worse than the best; the best is first."""
    has_spread: bool
    """Whether the figure was measured often enough to decide."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The choice for one need."""

    need: Need
    outcome: Outcome
    chosen: tuple[str, ...] = ()
    """One configuration, or those between which the results do not decide."""
    steps: tuple[Step, ...] = ()
    refused: tuple[Refusal, ...] = ()
    missing: tuple[str, ...] = ()
    """Scenarios that must be run first."""


def recommend(comparison: Comparison, needs: Sequence[Need] = NEEDS) -> list[Recommendation]:
    """Return the choice for each need, in order."""
    return [_for_need(comparison, each) for each in needs]


def _for_need(comparison: Comparison, need: Need) -> Recommendation:
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
        steps.append(_step(comparison, measure, names))
        names = list(steps[-1].left)
        if len(names) == 1 or not steps[-1].has_spread:
            break
    outcome = Outcome.CHOSEN if len(names) == 1 else Outcome.TIE
    if not steps[-1].has_spread:
        outcome, names = Outcome.ONE_RUN, names[:1]
    return Recommendation(need, outcome, tuple(names), tuple(steps), tuple(refused))


def _missing(comparison: Comparison, need: Need) -> tuple[str, ...]:
    wanted = [each.scenario for each in need.conditions]
    for measure in need.measures:
        if not _scenarios(comparison, measure):
            wanted += measure.scenarios
    return tuple(each for each in dict.fromkeys(wanted) if each not in comparison.scenarios)


def _scenarios(comparison: Comparison, measure: Measure) -> list[str]:
    return [each for each in measure.scenarios if each in comparison.scenarios]


def _why_refused(comparison: Comparison, need: Need, name: str) -> str:
    """Return why a configuration cannot be chosen; empty if it can."""
    if not configurations.BY_NAME[name].is_for_use:
        return "is for comparison only"
    used = [each.scenario for each in need.conditions]
    for measure in need.measures:
        used += _scenarios(comparison, measure)
    for scenario in dict.fromkeys(used):
        failed = failures_of(comparison, scenario, name)
        if failed:
            return f"has a failed run in {scenario}: {failed[0].reason}"
        if not runs_of(comparison, scenario, name):
            return f"was not run in {scenario} at the same rate"
    broken = (each for each in need.conditions if not _is_met(comparison, each, name))
    return next((f"{each.says} in {each.scenario}" for each in broken), "")


def _is_met(comparison: Comparison, condition: Condition, name: str) -> bool:
    value_of = figures.BY_NAME[condition.figure].of
    values = [value_of(run) for run in runs_of(comparison, condition.scenario, name)]
    return all(value is not None and condition.is_met_by(value) for value in values)


def _step(comparison: Comparison, measure: Measure, names: Sequence[str]) -> Step:
    figure = figures.BY_NAME[measure.figure]
    scenarios = _scenarios(comparison, measure)
    evidence = {name: worst(comparison, scenarios, name, figure.name) for name in names}
    found = {name: each for name, each in evidence.items() if each is not None}
    spreads = {name: each.spread for name, each in found.items()}
    sign = -1.0 if figure.more_is_better else 1.0
    ordered = sorted(found, key=lambda name: sign * spreads[name].median)
    if figure.is_exact:
        left = [each for each in ordered if spreads[each].median == spreads[ordered[0]].median]
        return Step(measure, found, tuple(left), has_spread=True)
    judged = verdicts(spreads, more_is_better=figure.more_is_better)
    has_spread = len(found) == 1 or Verdict.UNKNOWN not in judged.values()
    left = [each for each in ordered if judged[each] is not Verdict.WORSE]
    return Step(measure, found, tuple(left), has_spread=has_spread)
