"""The judge of campaigns on topics finds what was made wrong on purpose, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign.history import HistoryFile
from tests.campaign.judge import Violation
from tests.campaign.topics.facts import Commit, Facts, Fetch, GroupFacts, Outcome, Token
from tests.campaign.topics.judge import (
    Found,
    judge_acked,
    judge_ends,
    judge_group,
    judge_log,
    judge_same,
    judge_tokens,
)
from tests.campaign.topics.payloads import Identity, identify, payload_of
from tests.campaign.topics.spans import Span, SpanMaker
from tests.campaign.topics.watcher import positions_told

WRITER = "p0.0.0"


def found(*spans: Span, partition: int = 0) -> Found:
    return Found({partition: list(spans)})


def kinds(violations: list[Violation]) -> list[str]:
    return sorted({each.kind for each in violations})


WHOLE = found(Span(WRITER, 0, 0, 10), Span("p1.0.0", 0, 10, 5), Span(WRITER, 10, 15, 5))


def test_a_log_as_it_should_be() -> None:
    assert judge_log("plain", WHOLE) == []
    assert WHOLE.count == 20


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([Span(WRITER, 0, 0, 5), Span(WRITER, 3, 5, 5)], ["duplicate"]),
        ([Span(WRITER, 0, 0, 5), Span("p1.0.0", 0, 5, 5), Span(WRITER, 4, 10, 1)], ["duplicate"]),
        ([Span(WRITER, 5, 0, 5), Span(WRITER, 0, 5, 5)], ["order"]),
        ([Span(WRITER, 0, 0, 5), Span(WRITER, 5, 4, 5)], ["offsets"]),
    ],
)
def test_a_log_that_is_wrong(spans: list[Span], expected: list[str]) -> None:
    assert kinds(judge_log("plain", found(*spans))) == expected


def test_a_foreign_record_and_an_unreadable_log() -> None:
    wrong = Found(WHOLE.spans, ["0, offset 3"], "it stopped")
    assert kinds(judge_log("plain", wrong)) == ["foreign", "unreadable"]


def test_acknowledged_records() -> None:
    facts = Facts(acked={0: [Span(WRITER, 0, 0, 10), Span(WRITER, 10, 15, 5)]})
    assert judge_acked(facts, WHOLE) == []
    facts.acked[0].append(Span(WRITER, 15, 20, 2))
    (lost,) = judge_acked(facts, WHOLE)
    assert (lost.kind, lost.count) == ("lost", 2)
    facts.acked[0][-1] = Span("p1.0.0", 0, 11, 1)
    assert kinds(judge_acked(facts, WHOLE)) == ["misplaced"]
    facts.acked = {3: [Span(WRITER, 0, 0, 1)]}
    assert kinds(judge_acked(facts, WHOLE)) == ["lost"]


def token(outcome: Outcome) -> dict[str, Token]:
    return {"t0.0.0:0": Token("t0.0.0", {0: (0, 2), 1: (5, 1)}, outcome)}


FIRST, SECOND = Span("t0.0.0", 0, 7, 2), Span("t0.0.0", 5, 3, 1)
TOKEN_THERE = Found({0: [FIRST], 1: [SECOND]})
TOKEN_IN_PART = Found({0: [FIRST], 1: []})
NOTHING = Found({0: [], 1: []})


@pytest.mark.parametrize(
    ("outcome", "there", "expected"),
    [
        (Outcome.COMMITTED, TOKEN_THERE, []),
        (Outcome.COMMITTED, TOKEN_IN_PART, ["token lost"]),
        (Outcome.COMMITTED, NOTHING, ["token lost"]),
        (Outcome.ABORTED, NOTHING, []),
        (Outcome.ABORTED, TOKEN_IN_PART, ["aborted token"]),
        (Outcome.UNKNOWN, TOKEN_THERE, []),
        (Outcome.UNKNOWN, NOTHING, []),
        (Outcome.UNKNOWN, TOKEN_IN_PART, ["token in part"]),
    ],
)
def test_tokens(outcome: Outcome, there: Found, expected: list[str]) -> None:
    assert kinds(judge_tokens(token(outcome), there)) == expected


def test_a_record_of_no_token() -> None:
    stray = Found({0: [FIRST, Span("t0.0.0", 2, 9, 1)], 1: [SECOND]})
    assert kinds(judge_tokens(token(Outcome.COMMITTED), stray)) == ["stray"]


def test_reading_again() -> None:
    longer = {0: [*WHOLE.spans[0], Span(WRITER, 15, 20, 1)]}
    assert judge_same("read again", WHOLE.spans, longer) == []
    assert kinds(judge_same("read again", longer, WHOLE.spans)) == ["differs"]
    without = {0: WHOLE.spans[0][1:]}
    assert kinds(judge_same("watched", without, WHOLE.spans)) == ["differs"]
    twice = {0: [Span(WRITER, 0, 0, 10), *WHOLE.spans[0]]}
    assert kinds(judge_same("watched", twice, WHOLE.spans)) == ["differs"]


def group() -> GroupFacts:
    return GroupFacts(
        commits=[Commit(2.0, {0: 10}), Commit(1.0, {0: 5})],
        fetches=[Fetch("a", 0.5, {0: -1}), Fetch("b", 1.5, {0: 5}), Fetch("c", 1.9, {0: 10})],
        read={0: [Span(WRITER, 0, 0, 8), Span(WRITER, 5, 5, 5)]},
    )


def break_fetch(facts: GroupFacts) -> None:
    facts.fetches.append(Fetch("d", 2.1, {0: 9}))


def break_reading(facts: GroupFacts) -> None:
    facts.read = {0: [Span(WRITER, 0, 0, 8)]}


def break_record(facts: GroupFacts) -> None:
    facts.read[0].append(Span("p1.0.0", 4, 2, 1))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (break_fetch, ["offset went back"]),
        (break_reading, ["passed over"]),
        (break_record, ["read otherwise"]),
    ],
)
def test_groups(wrong: Callable[[GroupFacts], None], expected: list[str]) -> None:
    facts = group()
    assert judge_group("readers", facts, WHOLE) == []
    wrong(facts)
    assert kinds(judge_group("readers", facts, WHOLE)) == expected


def test_ends() -> None:
    facts = Facts(ends={("plain", "read_committed"): [{0: 5, 1: 3}, {1: 4}, {0: 5, 1: 4}]})
    assert judge_ends(facts) == []
    facts.ends["plain", "read_committed"].append({0: 4})
    assert kinds(judge_ends(facts)) == ["end went back"]


def test_payloads_tell_who_wrote_them_and_that_they_are_whole() -> None:
    identity = Identity(WRITER, 3, 1_234)
    value = payload_of(identity)
    assert identify(value, 3) == identity
    assert identify(value, 2) is None
    assert identify(value[:-1], 3) is None
    assert identify(value[:-1] + b"x", 3) is None
    assert identify(None, 3) is None
    assert identify(b"something else", 3) is None


def test_spans_join_what_follows() -> None:
    maker = SpanMaker()
    for number in range(3):
        maker.add(0, WRITER, number, number)
    maker.add(0, WRITER, 3, 4)
    maker.add(0, "p1.0.0", 4, 5)
    assert maker.take() == {"0": [[WRITER, 0, 0, 3], [WRITER, 3, 4, 1], ["p1.0.0", 4, 5, 1]]}
    assert maker.take() == {}


def test_a_watcher_goes_on_behind_what_it_told(tmp_path: Path) -> None:
    path = tmp_path / "watcher.jsonl"
    history = HistoryFile(path)
    assert positions_told(path, 2) == [0, 0]
    history.tell("read", by="watcher", group="", spans={"1": [["t", 0, 0, 4], ["t", 4, 7, 2]]})
    history.tell("read", by="watcher", group="", spans={"1": [["t", 6, 12, 1]]})
    assert positions_told(path, 2) == [0, 13]


def test_facts_of_a_history() -> None:
    facts = Facts()
    lines: list[dict[str, object]] = [
        {"event": "acked", "spans": {"1": [[WRITER, 0, 7, 3]]}},
        {"event": "began", "token": "t:0", "writer": "t", "parts": {"0": [4, 2]}},
        {"event": "committed", "token": "t:0"},
        {"event": "read", "group": "", "spans": {"0": [["t", 4, 0, 2]]}},
        {"event": "read", "group": "readers", "spans": {"1": [[WRITER, 0, 7, 3]]}},
        {"event": "offsets committed", "group": "readers", "mono": 1.0, "offsets": {"1": 10}},
        {
            "event": "offsets fetched",
            "by": "m",
            "group": "readers",
            "asked": 2.0,
            "offsets": {"1": 10},
        },
        {"event": "ends", "topic": "plain", "level": "read_committed", "ends": {"1": 10}},
        {"event": "in sync", "counts": [3, 2]},
        {"event": "failed", "error": "commit: x"},
        {"event": "complaint", "by": "m", "text": "wrong"},
        {"event": "ended", "left": 2},
    ]
    for line in lines:
        facts.take(line)
    assert facts.acked_count == 3
    assert facts.acked == {1: [Span(WRITER, 0, 7, 3)]}
    assert facts.tokens == {"t:0": Token("t", {0: (4, 2)}, Outcome.COMMITTED)}
    assert facts.tokens_of(Outcome.COMMITTED) == 1
    assert facts.watched == {0: [Span("t", 4, 0, 2)]}
    readers = facts.groups["readers"]
    assert readers.commits == [Commit(1.0, {1: 10})]
    assert readers.fetches == [Fetch("m", 2.0, {1: 10})]
    assert facts.ends == {("plain", "read_committed"): [{1: 10}]}
    assert (facts.in_sync_least, facts.left) == (2, 2)
    assert (facts.complaints, facts.failures["commit: x"]) == (["m: wrong"], 1)
    with pytest.raises(ValueError, match="unknown event"):
        facts.take({"event": "other"})
