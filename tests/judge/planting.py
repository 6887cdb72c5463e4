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
    return [each | {"closed": False} if each is look else each for each in lines]


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
        for each in history.transactions
        if each.outcome is Outcome.COMMITTED
        for elements in each.appends.values()
        for element in elements
    }
    for key, elements in history.order.items():
        if elements and elements[-1] in committed:
            return replace(history, order={**history.order, key: elements[:-1]})
    raise NothingToPlantError("no log ends with a record of a committed transaction")


def plant_aborted_read(history: TransactionHistory) -> TransactionHistory:
    """Add a read of a record of an aborted transaction."""
    for each in history.transactions:
        for key, elements in each.appends.items():
            if each.outcome is Outcome.ABORTED:
                read = {key: elements[:1]}
                name, end = "planted", each.end
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
    for each in lines:
        if each["operation"] in ENDS and each["outcome"] == "ok":
            known = ends.setdefault(each["ledger"], each)
            if each["end_ns"] < known["end_ns"]:
                ends[each["ledger"]] = each
    for each in lines:
        end = ends.get(each["ledger"])
        is_look = each["operation"] == "look" and each["outcome"] == "ok"
        if is_look and end is not None and each["start_ns"] > end["end_ns"]:
            return end, each
    raise NothingToPlantError("no ledger was closed and looked at afterwards: judge a longer one")
