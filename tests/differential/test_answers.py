"""Tests of the differential check: which values it compares, and which differences it reports."""

import json
from random import Random
from typing import TYPE_CHECKING

from tests.differential.answers import at, error_codes, number, reduce, text
from tests.differential.batches import CONTROL, TRANSACTIONAL, Batch, summary
from tests.differential.comparison import (
    EXPECTED,
    GOLDEN,
    compare,
    differences,
    golden_text,
    meant,
    recorded,
)
from tests.differential.run import Run
from tests.differential.script import CASES, name_of

if TYPE_CHECKING:
    from tests.differential.wire import Tree

PREFIX = "d123-"


def test_results_are_kept_without_ids_and_times() -> None:
    answer: Tree = {
        "throttle_time_ms": 3,
        "topics": [
            {"name": "d123-b", "error_code": 0, "offset": 7, "leader_epoch": 5, "timestamp": 99},
            {"name": "d123-a", "error_code": 3, "offset": -1, "error_message": "no"},
        ],
    }
    assert reduce(answer, PREFIX) == {
        "topics": [
            {"name": "a", "error_code": 3},
            {"name": "b", "error_code": 0, "offset": 7, "timestamp": "a time"},
        ]
    }


def test_presence_of_ids_is_kept() -> None:
    assert reduce({"session_id": 0, "producer_id": 0, "member_id": ""}, PREFIX) == {
        "session_id": False,
        "producer_id": True,
        "member_id": False,
    }


def test_missing_parts_of_answers_have_defaults() -> None:
    answer: Tree = {"topics": [{"partitions": [{"offset": 4}], "name": "x"}]}
    assert number(answer, "topics", 0, "partitions", 0, "offset") == 4
    assert text(answer, "topics", 0, "name") == "x"
    assert number(answer, "topics", 1, "offset") == -1
    assert text("connection closed", "member_id") == ""
    assert at(None, "topics") is None


def test_every_error_code_is_found() -> None:
    answer: Tree = {"error_code": 1, "parts": [{"partition_error_code": 2}, {"error_code": 0}]}
    assert error_codes(answer) == [1, 2, 0]


def test_batches_are_summed_up() -> None:
    key = Batch(values=(b"",), keys=(b"\0\0\0\1",), attributes=TRANSACTIONAL | CONTROL)
    data = Batch(base_offset=5).encode() + key.encode()
    assert summary(data) == ["5+3", "0+1 transactional commit"]
    assert summary(data[:-1])[0] == "5+3"


def test_missing_answers_are_differences_but_omitted_ones_are_not() -> None:
    found = differences({"a": 1}, {"a": 1, "b": 2, "c": 3}, {"c"})
    assert len(found) == 1
    assert found[0].startswith("b\n")


def test_recorded_answers_are_read_back() -> None:
    answers = {"b": {"error_code": 0}, "a": [1]}
    assert json.loads(golden_text({**answers})) == answers  # type: ignore[dict-item]
    assert len(json.loads(GOLDEN.read_text())) > 700


def test_intended_differences_have_operations_and_reasons() -> None:
    rules = json.loads(EXPECTED.read_text())
    for rule in rules:
        assert set(rule) == {"operation", "reason", "answer"}
    assert len(meant()) == len(rules)
    assert set(meant()) <= set(recorded())


def test_intended_differences_must_match_exactly() -> None:
    run, golden, own = Run("nowhere", Random(1)), recorded(), meant()
    run.answers.update({**golden, **own})
    assert list(compare(run, golden).unexpected) == []
    name = next(iter(own))
    run.answers[name] = "something else"
    assert len(compare(run, golden).unexpected) == 1
    run.answers[name] = golden[name]
    assert len(compare(run, golden).unexpected) == 1
    run.answers[name] = own[name]
    assert len(compare(run, {**golden, name: own[name]}).unexpected) == 1
    run.not_advertised.append(f"{name}: Produce 0")
    del run.answers[name]
    assert list(compare(run, golden).unexpected) == []


def test_names_of_cases_are_unique() -> None:
    names = [name_of(case) for case in CASES]
    assert "group.joining" in names
    assert len(set(names)) == len(names)
