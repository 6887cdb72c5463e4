"""Tests of the judge of campaigns on topics, on correct and on wrong histories."""

import json
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
    judge_unseen,
)
from tests.campaign.topics.payloads import Identity, identify, payload_of
from tests.campaign.topics.spans import Recogniser, Span, SpanList, SpanMaker
from tests.campaign.topics.stuck import STUCK_S_MAX, Behind, Standstill, known_to_client, stacks
from tests.campaign.topics.watcher import positions_told
from tests.campaign.topics.wrong import EXPECTED, WRONG
from tests.seeded_bugs.seeded_bug import SeededBug
from tests.seeded_bugs.trees import ROOT, patched_files

WRITER = "p0.0.0"


def found(*spans: Span, partition: int = 0) -> Found:
    return Found({partition: SpanList(spans)})


def spans_of(**partitions: list[Span]) -> dict[int, SpanList]:
    return {int(name[1:]): SpanList(spans) for name, spans in partitions.items()}


def kinds(violations: list[Violation]) -> list[str]:
    return sorted({violation.kind for violation in violations})


WHOLE = found(Span(WRITER, 0, 0, 10), Span("p1.0.0", 0, 10, 5), Span(WRITER, 10, 15, 5))


def test_a_correct_log_has_no_violation() -> None:
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
def test_violations_in_a_log_are_found(spans: list[Span], expected: list[str]) -> None:
    assert kinds(judge_log("plain", found(*spans))) == expected


def test_a_foreign_record_and_an_unreadable_log() -> None:
    wrong = Found(WHOLE.spans, ["0, offset 3"], "it stopped")
    assert kinds(judge_log("plain", wrong)) == ["foreign", "unreadable"]


def test_acknowledged_records() -> None:
    told = [Span(WRITER, 0, 0, 10), Span(WRITER, 10, 15, 5)]
    assert judge_acked(Facts(acked=spans_of(p0=told)), WHOLE) == []
    beyond = [*told, Span(WRITER, 15, 20, 2)]
    (lost,) = judge_acked(Facts(acked=spans_of(p0=beyond)), WHOLE)
    assert (lost.kind, lost.count) == ("lost", 2)
    elsewhere = [*told, Span("p1.0.0", 0, 11, 1)]
    (misplaced,) = judge_acked(Facts(acked=spans_of(p0=elsewhere)), WHOLE)
    assert (misplaced.kind, misplaced.count) == ("misplaced", 1)
    assert "('p1.0.0', 0, 11)" in misplaced.text
    facts = Facts(acked=spans_of(p3=[Span(WRITER, 0, 0, 1)]))
    assert kinds(judge_acked(facts, WHOLE)) == ["lost"]


def test_an_acknowledged_record_is_lost_out_of_the_middle() -> None:
    there = found(Span(WRITER, 0, 0, 4), Span(WRITER, 5, 5, 5))
    facts = Facts(acked=spans_of(p0=[Span(WRITER, 0, 0, 10)]))
    (lost,) = judge_acked(facts, there)
    assert (lost.kind, lost.count) == ("lost", 1)
    assert f"(4, {WRITER!r})" in lost.text


def token(outcome: Outcome) -> dict[str, Token]:
    return {"t0.0.0:0": Token("t0.0.0", {0: (0, 2), 1: (5, 1)}, outcome=outcome)}


FIRST, SECOND = Span("t0.0.0", 0, 7, 2), Span("t0.0.0", 5, 3, 1)
TOKEN_THERE = Found(spans_of(p0=[FIRST], p1=[SECOND]))
TOKEN_IN_PART = Found(spans_of(p0=[FIRST], p1=[]))
NOTHING = Found(spans_of(p0=[], p1=[]))


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
    stray = Found(spans_of(p0=[FIRST, Span("t0.0.0", 2, 9, 1)], p1=[SECOND]))
    assert kinds(judge_tokens(token(Outcome.COMMITTED), stray)) == ["stray"]


def test_reading_again() -> None:
    longer = spans_of(p0=[*WHOLE.spans[0], Span(WRITER, 15, 20, 1)])
    assert judge_same("read again", WHOLE.spans, longer) == []
    assert kinds(judge_same("read again", longer, WHOLE.spans)) == ["differs"]
    without = spans_of(p0=list(WHOLE.spans[0])[1:])
    assert kinds(judge_same("watched", without, WHOLE.spans)) == ["differs"]
    twice = spans_of(p0=[Span(WRITER, 0, 0, 10), *WHOLE.spans[0]])
    assert kinds(judge_same("watched", twice, WHOLE.spans)) == ["differs"]


def test_records_that_a_watcher_missed_are_found() -> None:
    assert judge_unseen("watched", WHOLE.spans, WHOLE.spans) == []
    (unseen,) = judge_unseen("watched", spans_of(p0=[Span(WRITER, 0, 0, 8)]), WHOLE.spans)
    assert (unseen.kind, unseen.count) == ("unseen", 12)
    (unseen,) = judge_unseen("watched", {}, WHOLE.spans)
    assert unseen.count == 20


def group() -> GroupFacts:
    return GroupFacts(
        commits=[Commit(2.0, {0: 10}), Commit(1.0, {0: 5})],
        fetches=[Fetch("a", 0.5, {0: -1}), Fetch("b", 1.5, {0: 5}), Fetch("c", 1.9, {0: 10})],
        read=spans_of(p0=[Span(WRITER, 0, 0, 8), Span(WRITER, 5, 5, 5)]),
    )


def break_fetch(facts: GroupFacts) -> None:
    facts.fetches.append(Fetch("d", 2.1, {0: 9}))


def break_reading(facts: GroupFacts) -> None:
    facts.read = spans_of(p0=[Span(WRITER, 0, 0, 8)])


def break_record(facts: GroupFacts) -> None:
    facts.read[0].add("p1.0.0", 4, 2, 1)


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


def test_payloads_identify_their_writer_and_are_complete() -> None:
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


def test_records_are_recognised_and_gathered() -> None:
    recogniser = Recogniser()
    values = [payload_of(Identity(WRITER, 1, number)) for number in range(6)]
    for offset, value in enumerate(values[:4]):
        assert recogniser.take(1, offset, value)
    assert recogniser.take(1, 7, values[4])
    assert not recogniser.take(2, 8, values[5])
    assert not recogniser.take(1, 8, values[5][:-1])
    assert recogniser.words() == {"1": [[WRITER, 0, 0, 4], [WRITER, 4, 7, 1]]}
    assert recogniser.words() == {}
    assert recogniser.take(1, 8, values[5])
    assert recogniser.take(1, 9, values[5])
    assert recogniser.words() == {"1": [[WRITER, 5, 8, 1], [WRITER, 5, 9, 1]]}


def test_a_list_of_spans_joins_what_follows_and_knows_its_end() -> None:
    spans = SpanList([Span(WRITER, 0, 0, 3), Span(WRITER, 3, 3, 2), Span("p1.0.0", 0, 9, 1)])
    assert list(spans) == [Span(WRITER, 0, 0, 5), Span("p1.0.0", 0, 9, 1)]
    assert (len(spans), spans.count, spans.end) == (2, 6, 10)
    assert (len(SpanList()), SpanList().count, SpanList().end) == (0, 0, 0)


def test_a_standstill_is_noticed_only_where_there_is_something_to_get() -> None:
    standstill, late = Standstill(), STUCK_S_MAX + 1
    assert standstill.note([5, 7], {0: 5, 1: 9}, 0.0) == ()
    assert standstill.note([5, 8], {0: 5, 1: 9}, late) == ()
    assert standstill.note([5, 8], {0: 6}, late) == ()
    assert standstill.note([5, 8], {0: 7, 1: 9}, 2 * late) == (
        Behind(0, 5, late, 7),
        Behind(1, 8, late, 9),
    )
    assert standstill.note([7, 9], {0: 7, 1: 9}, 3 * late) == ()


def test_the_clients_statistics_are_reported_for_a_stuck_partition() -> None:
    partition = {"fetch_state": "validate-epoch-wait", "next_offset": 5, "desired": True}
    told = {
        "topics": {"tokens": {"partitions": {"0": partition, "1": partition}}},
        "brokers": {"a": {"state": "UP", "req": {"Fetch": 2, "Produce": 0}, "tx": 3}},
    }
    assert known_to_client(json.dumps(told), "tokens", [1]) == {
        "partitions": {1: {"fetch_state": "validate-epoch-wait", "next_offset": 5}},
        "brokers": {"a": {"state": "UP", "req": {"Fetch": 2}}},
    }
    assert known_to_client("", "tokens", [1]) == {}


def test_stacks_of_a_clients_threads() -> None:
    text = """
Thread 2 (Thread 0x7f (LWP 12) "rdk:main"):
#0  0x00007f in __lll_lock_wait () from libc.so.6
#1  rd_kafka_toppar_op_serve (rk=0x1) at rdkafka_partition.c:1
Thread 1 (Thread 0x7e (LWP 11) "python"):
#0  0x00007f in poll () from libc.so.6
"""
    assert stacks(text) == ["rdk:main: __lll_lock_wait < rd_kafka_toppar_op_serve"]


def test_a_watcher_continues_after_its_recorded_position(tmp_path: Path) -> None:
    path = tmp_path / "watcher.jsonl"
    history = HistoryFile(path)
    assert positions_told(path, "watcher", 2) == [0, 0]
    for spans in ([["t", 0, 0, 4], ["t", 4, 7, 2]], [["t", 6, 12, 1]]):
        history.tell("read", by="watcher", group="", mono=1.0, spans={"1": spans})
    history.close()
    assert positions_told(path, "watcher", 2) == [0, 13]


def test_facts_of_a_history() -> None:
    facts = Facts()
    lines: list[dict[str, object]] = [
        {"event": "acked", "spans": {"1": [[WRITER, 0, 7, 3]]}},
        {
            "event": "began",
            "token": "t:0",
            "writer": "t",
            "parts": {"0": [4, 2]},
            "reader": "t",
            "reads": {},
            "mono": 1.0,
        },
        {"event": "committed", "token": "t:0", "mono": 2.0},
        {"event": "read", "by": "w", "group": "", "spans": {"0": [["t", 4, 0, 2]]}, "mono": 3.0},
        {"event": "read", "by": "m", "group": "readers", "spans": {"1": [[WRITER, 0, 7, 3]]}},
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
        {"event": "stuck", "by": "w", "found": {"why": "it hangs"}},
        {"event": "ended", "left": 2},
    ]
    for line in lines:
        facts.take(line)
    assert facts.acked_count == 3
    assert list(facts.acked[1]) == [Span(WRITER, 0, 7, 3)]
    token = Token("t", {0: (4, 2)}, "t", began=1.0, ended=2.0, outcome=Outcome.COMMITTED)
    assert facts.tokens == {"t:0": token}
    assert facts.tokens_of(Outcome.COMMITTED) == 1
    assert list(facts.watched["w"][0]) == [Span("t", 4, 0, 2)]
    readers = facts.groups["readers"]
    assert readers.commits == [Commit(1.0, {1: 10})]
    assert readers.fetches == [Fetch("m", 2.0, {1: 10})]
    assert facts.ends == {("plain", "read_committed"): [{1: 10}]}
    assert facts.stuck == [{"who": "w", "why": "it hangs"}]
    assert (facts.in_sync_least, facts.left) == (2, 2)
    assert (facts.complaints, facts.failures["commit: x"]) == (["m: wrong"], 1)
    with pytest.raises(ValueError, match="unknown event"):
        facts.take({"event": "other"})


@pytest.mark.parametrize("bug", WRONG, ids=lambda bug: str(bug.name))
def test_the_deliberate_bugs_still_fit_the_code(bug: SeededBug) -> None:
    assert patched_files(bug, ROOT)


def test_each_wrong_build_is_known() -> None:
    assert sorted(bug.name for bug in WRONG) == sorted(EXPECTED)
