"""History of transactions that append elements to keys and read them.

Leaves judging it to `elle`, and making it to `tests.campaign.topics.exporting`.

Format: JSON lines. A line with `transaction` is one transaction; a line with `key` is the final
order of the committed elements of one key. README.md describes the fields.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

Elements = Mapping[str, Sequence[str]]
"""For each key, elements in order. An element is appended once at most, to one key."""


class Outcome(Enum):
    """Outcome of a transaction, as its client received it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction: it reads first, and then appends. Without appends: one read of a reader."""

    name: str
    client: str
    """Reader of what was read; it continues where its previous transaction stopped."""
    outcome: Outcome
    start: float
    """When its reads were over, and no append was sent."""
    end: float = math.inf
    """When its client knew the outcome; infinite if it never did."""
    reads: Elements = field(default_factory=dict)
    appends: Elements = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the line of a history."""
        return {
            "transaction": self.name,
            "client": self.client,
            "outcome": self.outcome.value,
            "start_s": self.start,
            "end_s": None if math.isinf(self.end) else self.end,
            "reads": {key: list(sequence) for key, sequence in self.reads.items()},
            "appends": {key: list(sequence) for key, sequence in self.appends.items()},
        }

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Transaction":
        """Return the transaction of a line."""
        end = math.inf if line["end_s"] is None else line["end_s"]
        outcome = Outcome(line["outcome"])
        name, client, start = line["transaction"], line["client"], line["start_s"]
        return cls(name, client, outcome, start, end, line["reads"], line["appends"])


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """All transactions, and the final order of each key."""

    transactions: Sequence[Transaction]
    order: Elements


def write_transactions(path: Path, history: TransactionHistory) -> None:
    """Write a history."""
    with path.open("w") as file:
        for transaction in history.transactions:
            file.write(json.dumps(transaction.as_json(), separators=(",", ":")) + "\n")
        for key, elements in history.order.items():
            line = {"key": key, "order": list(elements)}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_transactions(path: Path) -> TransactionHistory:
    """Read a history. Raises ValueError, KeyError for lines that are none."""
    with path.open() as file:
        return _history_of(json.loads(line) for line in file)


def _history_of(lines: Iterable[dict[str, Any]]) -> TransactionHistory:
    transactions: list[Transaction] = []
    order: dict[str, list[str]] = {}
    for line in lines:
        if "key" in line:
            order[line["key"]] = line["order"]
        else:
            transactions.append(Transaction.of(line))
    return TransactionHistory(transactions, order)
