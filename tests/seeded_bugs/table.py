"""Table of the results of seeded bugs: one row for each bug, a column for each class of detectors.

Leaves running them to `runner`.
"""

from collections.abc import Sequence
from typing import Any, Final

from tests.seeded_bugs.detectors import Finding
from tests.seeded_bugs.runner import Plan, Verdict, is_missing
from tests.seeded_bugs.seeded_bug import Kind, SeededBug

EVIDENCE_CHARS: Final = 72
UNITS_OF: Final = {Kind.UNITS: "tests", Kind.MODEL: "states", Kind.SIMULATION: "seeds"}


def rows(verdicts: Sequence[Verdict], kinds: Sequence[Kind]) -> list[list[str]]:
    """Return the table's rows, the heading first."""
    heads = [f"{kind} ({UNITS_OF[kind]}, s)" for kind in kinds]
    table = [["bug", "rules", *heads, "evidence"]]
    for verdict in verdicts:
        bug = verdict.bug
        cells = [_cell(bug, verdict.finding(kind), kind) for kind in kinds]
        table.append([bug.name, " ".join(bug.rules), *cells, _evidence(verdict)])
    return table


def render(table: Sequence[Sequence[str]]) -> str:
    """Return rows in columns."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def evidence_of_missing(verdicts: Sequence[Verdict], plan: Plan) -> str:
    """Return a line for each detector of a missed bug, with its result and the reason."""
    lines = [
        f"{verdict.bug.name}: {each.kind}: {each.verdict} after {each.count:,} and "
        f"{each.seconds:.0f} s: {' | '.join((each.culprit, *each.evidence))}\n"
        for verdict in verdicts
        if verdict.findings and is_missing(verdict, plan)
        for each in verdict.findings
    ]
    return "".join(lines)


def score(verdicts: Sequence[Verdict], plan: Plan) -> str:
    """Return one line with the number of bugs found, in total and by each class."""
    parts = []
    for kind in plan.kinds:
        findings = [found for each in verdicts if (found := each.finding(kind)) is not None]
        ran = [each for each in findings if each.verdict != "absent"]
        if ran:
            parts.append(f"{kind} {sum(each.is_found for each in ran)} of {len(ran)} tried")
        elif findings:
            parts.append(f"{kind} is not in this tree")
    looked_for = [each for each in verdicts if each.findings]
    missing = [each.bug.name for each in looked_for if is_missing(each, plan)]
    found_count = len(looked_for) - len(missing)
    text = f"{found_count} of {len(looked_for)} seeded bugs found ({'; '.join(parts)})"
    return f"{text}; not found: {', '.join(missing)}" if missing else text


def as_json(verdicts: Sequence[Verdict], plan: Plan) -> dict[str, Any]:
    """Return all results, for machines."""
    return {
        "bugs": [_bug_as_json(each, plan) for each in verdicts],
        "looked_for": sum(bool(each.findings) for each in verdicts),
        "found": sum(each.is_found for each in verdicts),
        "not_found": [each.bug.name for each in verdicts if is_missing(each, plan)],
        "missed_by": {
            str(kind): [
                each.bug.name
                for each in verdicts
                if (finding := each.finding(kind)) is not None and not finding.is_found
            ]
            for kind in plan.kinds
        },
    }


def _bug_as_json(verdict: Verdict, plan: Plan) -> dict[str, Any]:
    bug = verdict.bug
    return {
        "name": bug.name,
        "wrong": bug.wrong,
        "rules": list(bug.rules),
        "masked_by": bug.masked_by,
        "is_found": verdict.is_found,
        "is_missing": is_missing(verdict, plan),
        "out_of_sight": {str(each.kind): each.why for each in bug.out_of_sight},
        "detectors": {
            str(each.kind): {
                "verdict": each.verdict,
                "count": each.count,
                "seconds": round(each.seconds, 1),
                "culprit": each.culprit,
                "evidence": list(each.evidence),
            }
            for each in verdict.findings
        },
    }


def _cell(bug: SeededBug, finding: Finding | None, kind: Kind) -> str:
    if finding is None:
        return "-" if bug.detector(kind) is not None else "out of sight"
    if finding.is_found:
        return f"{finding.count:,}  {finding.seconds:.0f} s"
    if finding.verdict == "missed":
        return f"missed in {finding.count:,}  {finding.seconds:.0f} s"
    return finding.verdict


def _evidence(verdict: Verdict) -> str:
    findings = [each for each in verdict.findings if each.is_found] or list(verdict.findings)
    text = next((line for each in findings for line in each.evidence if line), "")
    return text if len(text) <= EVIDENCE_CHARS else text[: EVIDENCE_CHARS - 3] + "..."
