"""Histories with one planted error each, which a judge must reject.

Leaves judging to `linearizability` and `elle`. An error of operations is planted in a ledger that
was closed and looked at afterwards, so that the history alone proves it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.judge.transactions import Outcome, Transaction, TransactionHistory

Line = dict[str, Any]
ENDS: Final = ("close", "recover")


class NothingToPlantError(Exception):
    """Nothing in the history would prove the error."""


def plant_lost_write(lines: list[Line]) -> list[Line]:
    """Add an acknowledged append behind the last entry of a ledger, before its end."""
    end, _ = _end_and_look(lines)
    lost: Line = {
        "id": "planted/1",
        "client": "planted",
        "handle": "planted",
        "operation": "append",
        "ledger": end["ledger"],
        "first": end["last"] + 1,
        "values": ["planted"],
        "start_ns": end["start_ns"] - 2,
        "end_ns": end["start_ns"] - 1,
        "outcome": "ok",
    }
    return [*lines, lost]


def plant_stale_read(lines: list[Line]) -> list[Line]:
    """Let a look at a ledger that began after its end return that the ledger is open."""
    _, look = _end_and_look(lines)
    return [line | {"closed": False} if line is look else line for line in lines]


PLANTS: Final[Mapping[str, Callable[[list[Line]], list[Line]]]] = {
    "lost-write": plant_lost_write,
    "stale-read": plant_stale_read,
}


def plant(kind: str, history: Path, planted: Path) -> None:
    """Write a copy of a history with a planted error. Raises NothingToPlantError."""
    lines = [json.loads(line) for line in history.read_bytes().splitlines()]
    changed = PLANTS[kind](lines)
    planted.write_text("".join(json.dumps(each) + "\n" for each in changed))


def plant_lost_record(history: TransactionHistory) -> TransactionHistory:
    """Remove the last record of a committed transaction from its log."""
    committed = {
        element
        for transaction in history.transactions
        if transaction.outcome is Outcome.COMMITTED
        for elements in transaction.appends.values()
        for element in elements
    }
    for key, elements in history.order.items():
        if elements and elements[-1] in committed:
            return replace(history, order={**history.order, key: elements[:-1]})
    raise NothingToPlantError("no log ends with a record of a committed transaction")


def plant_aborted_read(history: TransactionHistory) -> TransactionHistory:
    """Add a read of a record of an aborted transaction."""
    for transaction in history.transactions:
        for key, elements in transaction.appends.items():
            if transaction.outcome is Outcome.ABORTED:
                read = {key: elements[:1]}
                name, end = "planted", transaction.end
                planted = Transaction(name, name, Outcome.COMMITTED, end, end, read)
                return replace(history, transactions=[*history.transactions, planted])
    raise NothingToPlantError("no transaction was aborted")


TRANSACTION_PLANTS: Final[Mapping[str, Callable[[TransactionHistory], TransactionHistory]]] = {
    "lost-write": plant_lost_record,
    "aborted-read": plant_aborted_read,
}


def _end_and_look(lines: list[Line]) -> tuple[Line, Line]:
    """Return an operation that ended a ledger, and a look at that ledger that began later."""
    ends: dict[int, Line] = {}
    for line in lines:
        if line["operation"] in ENDS and line["outcome"] == "ok":
            known = ends.setdefault(line["ledger"], line)
            if line["end_ns"] < known["end_ns"]:
                ends[line["ledger"]] = line
    for line in lines:
        end = ends.get(line["ledger"])
        is_look = line["operation"] == "look" and line["outcome"] == "ok"
        if is_look and end is not None and line["start_ns"] > end["end_ns"]:
            return end, line
    raise NothingToPlantError("no ledger was closed and looked at afterwards: judge a longer one")
