"""Scores of modules, and the mutants that their tests did not notice, as text and as JSON.

Leaves judging to `session`, and the reasons to `explained`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.mutation.explained import Key
from tests.mutation.session import Judgement, Verdict
from tests.mutation.targets import Target


@dataclass(frozen=True, slots=True)
class Result:
    """One judged mutant, and the reason why no test can notice it, if there is one."""

    target: Target
    judged: Judgement
    reason: str

    @property
    def is_surprising(self) -> bool:
        """Return whether it was not noticed and has no reason, or was noticed and has one."""
        return (self.judged.verdict is Verdict.KILLED) == bool(self.reason)


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of one module's mutants."""

    path: str
    wanted: int
    mutants: int
    killed: int
    explained: int

    @property
    def percentage(self) -> float:
        """Share of killed mutants."""
        return 100 * self.killed / self.mutants


def scores_of(results: Sequence[Result]) -> list[Score]:
    """Count each module's mutants, in the order of the results."""
    by_module: dict[str, list[Result]] = {}
    for result in results:
        by_module.setdefault(result.judged.mutant.path, []).append(result)
    found = []
    for path, some in by_module.items():
        killed = sum(result.judged.verdict is Verdict.KILLED for result in some)
        reasoned = sum(
            bool(result.reason) and result.judged.verdict is not Verdict.KILLED for result in some
        )
        found.append(Score(path, some[0].target.wanted, len(some), killed, reasoned))
    return found


def table(results: Sequence[Result]) -> str:
    """Return the scores as a table of Markdown."""
    lines = [
        "| module | mutants | killed | explained | left | score |",
        "|---|---|---|---|---|---|",
    ]
    counted = scores_of(results)
    total = Score(
        "all", 0, *(sum(column) for column in zip(*(_counts(s) for s in counted), strict=True))
    )
    for score in [*counted, total]:
        left = score.mutants - score.killed - score.explained
        lines.append(
            f"| {score.path} | {score.mutants} | {score.killed} | {score.explained} | {left} |"
            f" {score.percentage:.1f} % |"
        )
    return "\n".join(lines) + "\n"


def _counts(score: Score) -> tuple[int, int, int]:
    return score.mutants, score.killed, score.explained


def are_as_wanted(results: Sequence[Result], percentage: float) -> bool:
    """Return whether at least this share of the mutants is killed or explained, and no explained
    one is killed.
    """
    noticed = [result for result in results if result.judged.verdict is Verdict.KILLED]
    if any(result.reason for result in noticed):
        return False
    known = len(noticed) + sum(bool(result.reason) for result in results)
    return known * 100 >= percentage * len(results)


def surprises(results: Sequence[Result]) -> str:
    """Return what is not as recorded, one mutant in two lines."""
    lines = []
    for result in results:
        if result.is_surprising:
            said = (
                f"{result.judged.verdict}, though explained: {result.reason}"
                if result.reason
                else result.judged.verdict
            )
            lines.append(f"{result.judged.mutant.described} [{said}]\n")
    return "".join(lines)


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return scores and survivors as JSON can hold them."""
    return {
        "modules": {
            score.path: {
                "mutants": score.mutants,
                "killed": score.killed,
                "explained": score.explained,
                "score": round(score.percentage, 1),
                "wanted": score.wanted,
            }
            for score in scores_of(results)
        },
        "survivors": [
            {
                "module": result.judged.mutant.path,
                "function": result.judged.mutant.function,
                "line": result.judged.mutant.line,
                "text": result.judged.mutant.text,
                "change": result.judged.mutant.change,
                "verdict": result.judged.verdict,
                "reason": result.reason,
            }
            for result in results
            if result.judged.verdict is not Verdict.KILLED
        ],
        "slowest": [
            [
                round(each.judged.seconds, 1),
                each.judged.mutant.described,
                each.judged.verdict,
                each.judged.test,
            ]
            for each in sorted(results, key=lambda result: -result.judged.seconds)[:20]
        ],
    }


def keys_of(written: dict[str, Any]) -> frozenset[Key]:
    """Return the survivors of a run that `as_json` wrote."""
    fields = ("module", "function", "text", "change")
    return frozenset(
        (each[fields[0]], each[fields[1]], each[fields[2]], each[fields[3]])
        for each in written["survivors"]
    )
