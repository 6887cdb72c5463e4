"""Transactions of a campaign on topics, as a history for a judge.

Leaves recording to the processes, and judging to `tests.judge.elle`.

Invariant: pure. A partition is a key. A record is an element, with its writer, partition and number
as its name.
"""

import math
from collections.abc import Iterable, Mapping

from tests.campaign.topics.facts import Facts, Outcome, Token, TokenRead
from tests.campaign.topics.judge import Found
from tests.campaign.topics.spans import SpanList
from tests.judge import transactions
from tests.judge.transactions import Transaction, TransactionHistory


def transactions_of(facts: Facts, committed: Found) -> TransactionHistory:
    """Return the history of all tokens, and of the reads of watchers and transactors."""
    found = [_transaction(name, token) for name, token in facts.tokens.items()]
    found += [_read(number, read) for number, read in enumerate(facts.token_reads)]
    return TransactionHistory(found, _elements(committed.spans))


def _transaction(name: str, token: Token) -> Transaction:
    appends = {
        str(partition): [
            element(token.writer, partition, first + number) for number in range(count)
        ]
        for partition, (first, count) in token.parts.items()
    }
    outcome = transactions.Outcome(token.outcome.value)
    end = math.inf if token.outcome is Outcome.UNKNOWN else token.ended
    reads = _elements(token.reads)
    return Transaction(name, token.reader, outcome, token.began, end, reads, appends)


def _read(number: int, read: TokenRead) -> Transaction:
    name, outcome = f"{read.by}, read {number}", transactions.Outcome.COMMITTED
    return Transaction(name, read.by, outcome, read.at, read.at, _elements(read.spans))


def _elements(spans: Mapping[int, SpanList]) -> dict[str, list[str]]:
    return {
        str(partition): list(_names(partition, span_list)) for partition, span_list in spans.items()
    }


def _names(partition: int, spans: SpanList) -> Iterable[str]:
    for span in spans:
        for number in range(span.count):
            yield element(span.writer, partition, span.sequence + number)


def element(writer: str, partition: int, sequence: int) -> str:
    """Return the name of a record."""
    return f"{writer}/{partition}/{sequence}"
