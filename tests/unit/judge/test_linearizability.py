"""Tests of the outside judge on correct histories of a ledger, and on histories that lie."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.judge.linearizability import (
    JudgeError,
    Verdict,
    build_judge,
    judge_operations,
    run_judge,
    why_no_go,
)
from tests.judge.operations import CreatedLedgers, OperationFile, value_of
from tests.judge.planting import PLANTS, NothingToPlantError, plant

Line = dict[str, Any]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the judge, once for all tests."""
    why = why_no_go()
    if why:
        pytest.skip(why)
    return build_judge(tmp_path_factory.mktemp("judge"))


def op(
    operation: str, start: int, end: int | None, *, by: str = "w", outcome: str = "ok", **facts: Any
) -> Line:
    name = f"{by}/{operation}/{start}"
    line = {"id": name, "client": by, "handle": by, "operation": operation, "ledger": 1}
    return line | {"start_ns": start, "end_ns": end, "outcome": outcome} | facts


def append(entry: int, start: int, end: int, *values: str, by: str = "w") -> Line:
    return op("append", start, end, by=by, first=entry, values=list(values or (f"v{entry}",)))


def lost(entry: int, start: int, *values: str, confirmed: int = 0) -> Line:
    """Return an append whose outcome no client knows."""
    facts: Line = {"first": entry, "values": list(values or (f"v{entry}",)), "confirmed": confirmed}
    return op("append", start, start + 1, outcome="unknown", **facts)


def read(first: int, start: int, end: int, *values: str, by: str = "r") -> Line:
    return op("read", start, end, by=by, first=first, values=list(values))


def judged(program: Path, tmp_path: Path, *lines: Line, limit_s: float = 60.0) -> Verdict:
    path = tmp_path / "operations"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_judge(program, path, ledger_s_max=limit_s)


WRITTEN = [append(0, 1, 5), append(1, 2, 6), append(2, 7, 9, "v2", "v3")]
WHOLE = [
    op("create", 0, 0),
    *WRITTEN,
    op("lac", 10, 11, by="r", last=2),
    op("look", 10, 11, by="l", closed=False),
    op("recover", 12, 20, by="x", last=3),
    read(0, 21, 22, "v0", "v1", "v2", "v3"),
    op("absent", 23, 24, by="r", first=4, closed=True),
    op("look", 25, 26, by="l", closed=True, last=3),
    op("close", 27, 28, by="w", last=3),
]
ACCEPTED = {
    "whole": WHOLE,
    "concurrent appends are confirmed before their answers": [
        append(0, 1, 50),
        append(1, 2, 50),
        read(0, 2, 3, "v0", "v1"),
    ],
    "a pending append is recovered, and acknowledged late": [
        append(0, 1, 50),
        op("recover", 2, 9, by="x", last=0),
    ],
    "the log as a writer that was taken over sees it": [
        append(0, 1, 50),
        op("recover", 2, 9, by="x", last=0),
        read(0, 10, 11, "v0", by="y"),
        op("lac", 20, 21, last=-1),
    ],
    "an unknown append took effect": [lost(0, 1), op("recover", 5, 9, by="x", last=0)],
    "an unknown append took no effect": [lost(0, 1), op("recover", 5, 9, by="x", last=-1)],
    "an unknown append takes effect later": [
        lost(0, 1),
        op("look", 5, 6, closed=False),
        op("lac", 7, 8, by="r", last=-1),
        op("lac", 9, 10, by="r", last=0),
    ],
    "a part of an append of many took effect": [
        lost(0, 1, "a", "b", "c", "d", confirmed=1),
        op("recover", 5, 9, by="x", last=2),
        read(0, 10, 11, "a", "b", "c"),
    ],
    "unknown appends of a ledger that is never closed": [lost(0, 1), lost(1, 2), lost(5, 3)],
    "an unknown recovery closes the ledger later": [
        op("recover", 1, 2, by="x", outcome="unknown"),
        append(0, 5, 6),
        op("look", 10, 11, closed=True, last=0),
    ],
    "an unknown recovery closes nothing": [
        op("recover", 1, 2, by="x", outcome="unknown"),
        append(0, 5, 6),
        op("look", 10, 11, closed=False),
    ],
    "a reader of an open ledger is late": [
        *WRITTEN,
        op("lac", 10, 11, by="r", last=0),
        op("absent", 12, 13, by="r", first=1, closed=False),
    ],
    "a failed append took no effect": [
        append(0, 1, 2),
        op("append", 3, 4, outcome="fail", first=None, values=["x"]),
        append(1, 5, 6),
    ],
}
REJECTED = {
    "lost write: closed before an acknowledged entry": [
        *WRITTEN,
        op("recover", 12, 20, by="x", last=2),
    ],
    "lost write: the confirmed part of an append of many": [
        lost(0, 1, "a", "b", "c", confirmed=2),
        op("recover", 5, 9, by="x", last=0),
    ],
    "lost write: absent from a closed ledger": [
        *WHOLE,
        op("absent", 30, 31, by="r", first=3, closed=True),
    ],
    "stale read: open after its end": [*WHOLE, op("look", 30, 31, closed=False)],
    "stale read: a LAC that goes back": [
        *WRITTEN,
        *(
            op("lac", 10 + 2 * number, 11 + 2 * number, by="r", last=last)
            for number, last in enumerate((2, 1))
        ),
    ],
    "stale read: absent where its handle was shown it": [
        *WRITTEN,
        op("lac", 10, 11, by="r", last=2),
        op("absent", 12, 13, by="r", first=1, closed=False),
    ],
    "a LAC that nothing confirmed": [*WRITTEN, op("lac", 10, 11, by="r", last=4)],
    "an entry before it was appended": [read(0, 1, 2, "v0"), append(0, 3, 4)],
    "an entry with another value": [*WRITTEN, read(1, 10, 11, "v0")],
    "entries in another order": [*WRITTEN, read(0, 10, 11, "v1", "v0")],
    "one id for two appends": [append(0, 1, 2), append(0, 3, 4, "other")],
    "a gap": [append(0, 1, 2), append(2, 3, 4)],
    "two ends": [*WHOLE, op("recover", 30, 31, by="y", last=2)],
    "an append after the end": [*WHOLE, append(4, 30, 31)],
    "an unknown append that was read and is lost": [
        lost(0, 1),
        read(0, 5, 6, "v0"),
        op("recover", 7, 9, by="x", last=-1),
    ],
    "an unknown append before it began": [
        read(0, 1, 2, "v0"),
        lost(0, 5),
    ],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_correct_histories_are_accepted(program: Path, tmp_path: Path, name: str) -> None:
    verdict = judged(program, tmp_path, *ACCEPTED[name])
    assert verdict.result == "accepted", verdict


@pytest.mark.parametrize("name", REJECTED)
def test_false_histories_are_rejected(program: Path, tmp_path: Path, name: str) -> None:
    verdict = judged(program, tmp_path, *REJECTED[name])
    assert verdict.result == "rejected", verdict
    assert verdict.report["illegal"][0]["not_placed"]


def test_ledgers_are_judged_one_by_one(program: Path, tmp_path: Path) -> None:
    other = [each | {"ledger": 2, "id": "other " + each["id"]} for each in WHOLE]
    verdict = judged(program, tmp_path, *WHOLE, *other, append(4, 30, 31))
    assert verdict.report["ledgers"] == 2
    assert [each["ledger"] for each in verdict.report["illegal"]] == [1]


def test_a_search_that_takes_too_long_is_no_acceptance(program: Path, tmp_path: Path) -> None:
    """Thirty entries in no known order, of which none fits what was read."""
    appends = [lost(0, number, f"v{number}") | {"first": None} for number in range(1, 31)]
    verdict = judged(program, tmp_path, *appends, read(29, 50, 51, "other"), limit_s=0.2)
    assert verdict.result == "undecided"
    assert verdict.report["undecided"] == [1]


@pytest.mark.parametrize(
    "line",
    [
        {**append(0, 1, 2), "outcome": "maybe"},
        {**append(0, 1, 2), "operation": "truncate"},
        {**append(0, 1, 2), "end_ns": 0},
        {**append(0, 1, 2), "first": None},
        {**append(0, 1, 2), "more": 1},
    ],
)
def test_lines_that_are_no_operations_are_refused(
    program: Path, tmp_path: Path, line: Line
) -> None:
    with pytest.raises(JudgeError, match="line 1"):
        judged(program, tmp_path, line)


def test_an_empty_history_proves_nothing(program: Path, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="no operation"):
        judged(program, tmp_path, op("create", 0, 0))


def test_exported_operations_are_judged(program: Path, tmp_path: Path) -> None:
    """An append whose process is killed has a line: it may be in the ledger."""
    path = tmp_path / "operations"
    writer, reader = OperationFile(path, "w"), OperationFile(path, "r")
    writer.end(writer.begin("create", 1, "w/1"), "ok")
    values = [value_of(b"one"), value_of(b"two")]
    first = writer.begin("append", 1, "w/1", first=0, values=values[:1])
    writer.end(first, "ok")
    writer.begin("append", 1, "w/1", first=1, values=values[1:])
    writer.close()
    recovery = reader.begin("recover", 1, "r/1")
    reader.end(recovery, "ok", last=1)
    reader.end(reader.begin("read", 1, "r/1", first=0), "ok", values=values)
    reader.end(reader.begin("look", 1, "r/1"), "ok", closed=True, last=1)
    reader.close()
    assert CreatedLedgers(path).catch_up() == [1]
    verdict = run_judge(program, path)
    assert verdict.result == "accepted", verdict
    assert verdict.report["operations"] == 6
    assert verdict.report["unknown_operations"] == 1
    for kind in PLANTS:
        planted = tmp_path / kind
        plant(kind, path, planted)
        assert run_judge(program, planted).result == "rejected", kind


def test_an_error_is_only_planted_where_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "operations"
    path.write_text(json.dumps(append(0, 1, 2)) + "\n")
    with pytest.raises(NothingToPlantError):
        plant("lost-write", path, tmp_path / "planted")


def test_without_go_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = judge_operations(tmp_path / "operations")
    assert verdict.as_json()["result"] == "skipped"
    assert "Go is not on the PATH" in verdict.why
