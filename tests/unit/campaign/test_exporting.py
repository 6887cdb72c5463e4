"""Tests of the history of transactions that a campaign on topics exports."""

import math

from tests.campaign.topics.exporting import transactions_of
from tests.campaign.topics.facts import Facts
from tests.campaign.topics.judge import Found
from tests.campaign.topics.spans import Span, SpanList
from tests.judge import transactions
from tests.judge.elle import find_anomalies
from tests.judge.transactions import Transaction

COMMITTED, UNKNOWN = transactions.Outcome.COMMITTED, transactions.Outcome.UNKNOWN
LINES: list[dict[str, object]] = [
    {
        "event": "began",
        "token": "t:0",
        "writer": "t",
        "reader": "tr",
        "mono": 1.0,
        "parts": {"0": [4, 2], "1": [7, 1]},
        "reads": {},
    },
    {"event": "committed", "token": "t:0", "mono": 2.0},
    {"event": "read", "by": "w", "group": "", "mono": 3.0, "spans": {"0": [["t", 4, 0, 2]]}},
    {"event": "read", "by": "m", "group": "g", "mono": 3.0, "spans": {"0": [["p", 0, 0, 9]]}},
    {
        "event": "began",
        "token": "u:0",
        "writer": "u",
        "reader": "ur",
        "mono": 4.0,
        "parts": {"1": [0, 1]},
        "reads": {"1": [["t", 7, 0, 1]]},
    },
]
ORDER = {0: SpanList([Span("t", 4, 0, 2)]), 1: SpanList([Span("t", 7, 0, 1)])}


def facts() -> Facts:
    found = Facts()
    for line in LINES:
        found.take(line)
    return found


def test_tokens_and_reads_are_transactions() -> None:
    history = transactions_of(facts(), Found(ORDER))
    assert history.order == {"0": ["t/0/4", "t/0/5"], "1": ["t/1/7"]}
    assert history.transactions == [
        Transaction(
            "t:0", "tr", COMMITTED, 1.0, 2.0, {}, {"0": ["t/0/4", "t/0/5"], "1": ["t/1/7"]}
        ),
        Transaction("u:0", "ur", UNKNOWN, 4.0, math.inf, {"1": ["t/1/7"]}, {"1": ["u/1/0"]}),
        Transaction("w, read 0", "w", COMMITTED, 3.0, 3.0, {"0": ["t/0/4", "t/0/5"]}),
    ]
    assert find_anomalies(history).anomalies == []


def test_a_campaign_that_lost_a_part_of_a_token_is_rejected() -> None:
    found = Found({0: SpanList([Span("t", 4, 0, 2)])})
    kinds = {anomaly.kind for anomaly in find_anomalies(transactions_of(facts(), found)).anomalies}
    assert kinds == {"lost write"}
