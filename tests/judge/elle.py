"""Anomalies of transactions that append to logs and read them, with the names that Elle gives them.

Leaves the history to `transactions`, and the search for cycles to `cycles`.

G0, G1c: everything that happens at one moment is a node: a transaction begins to append, each
element is appended, the transaction is decided. An edge leads to what must come later:

- `log`: the next element of the same key; a log gives its places in the order of the appends;
- `part`: a transaction begins, appends its elements, is decided;
- `time`: a decision that a client knew of comes before everything that began afterwards;
- `read`: a transaction is decided before another one that read of it begins to append.

A cycle means that no order of these events explains the history. It is G1c if it needs an edge
`read`, and G0 otherwise. Transactions of different producers may append to two logs in opposite
orders: Kafka does not isolate writes. Each element is its own event, so that this is no cycle.
`interleaved` counts such transactions.

The names are those of "Generalized Isolation Level Definitions" (Adya, Liskov, O'Neil), which Elle
(Kingsbury, Alvaro) uses too.

Invariant: pure.

Source: KIP-98.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.judge.cycles import Edge, Graph, find_cycles
from tests.judge.transactions import Outcome, Transaction, TransactionHistory

SHOWN_MAX: Final = 20
STEPS_SHOWN_MAX: Final = 12
LOST: Final = "lost write"
DISORDER: Final = "incompatible order"
DUPLICATE: Final = "duplicate"
STRAY: Final = "stray"
Place = tuple[str, int]
"""A key, and an index in its order."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken guarantee."""

    kind: str
    text: str


@dataclass(slots=True)
class Report:
    """Result of judging one history."""

    transactions: int = 0
    reads: int = 0
    """Reads of readers that append nothing."""
    elements: int = 0
    read_from: int = 0
    """Pairs of transactions of which one read of the other."""
    interleaved: int = 0
    """Transactions with elements of others between their own in a log."""
    anomalies: list[Anomaly] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that a campaign prints."""
        names = ("transactions", "reads", "elements", "read_from", "interleaved")
        kinds = Counter(anomaly.kind for anomaly in self.anomalies)
        shown = [f"{anomaly.kind}: {anomaly.text}" for anomaly in self.anomalies[:SHOWN_MAX]]
        result = "rejected" if self.anomalies else "accepted"
        counts = {name: getattr(self, name) for name in names}
        return {"result": result, **counts, "broken": dict(kinds), "anomalies": shown}


def find_anomalies(history: TransactionHistory) -> Report:
    """Judge a history."""
    return _Judge(history).judge()


class _Judge:
    def __init__(self, history: TransactionHistory) -> None:
        self._history = history
        self._report = Report()
        self._owner: dict[str, int] = {}
        """The transaction that appended an element, by its number."""
        self._place: dict[str, Place] = {}

    def judge(self) -> Report:
        """Judge everything."""
        transactions = self._history.transactions
        self._report.transactions = sum(bool(transaction.appends) for transaction in transactions)
        self._report.reads = len(transactions) - self._report.transactions
        self._take_appends()
        self._take_order()
        self._judge_outcomes()
        self._judge_reads()
        self._judge_cycles()
        self._report.interleaved = self._count_interleaved()
        return self._report

    def _found(self, kind: str, text: str) -> None:
        self._report.anomalies.append(Anomaly(kind, text))

    # -- elements --------------------------------------------------------------------------------

    def _take_appends(self) -> None:
        for number, transaction in enumerate(self._history.transactions):
            for elements in transaction.appends.values():
                self._owner |= dict.fromkeys(elements, number)

    def _take_order(self) -> None:
        for key, elements in self._history.order.items():
            self._report.elements += len(elements)
            for index, element in enumerate(elements):
                if element in self._place:
                    text = f"{element} at {self._place[element]} and {(key, index)}"
                    self._found(DUPLICATE, text)
                    continue
                self._place[element] = key, index
                owner = self._owner.get(element)
                if owner is None or element not in self._transaction(owner).appends.get(key, ()):
                    self._found(STRAY, f"{element} in {key} is of no transaction")

    def _transaction(self, number: int) -> Transaction:
        return self._history.transactions[number]

    def _name(self, element: str) -> str:
        owner = self._owner.get(element)
        return f"{element} of {'none' if owner is None else self._transaction(owner).name}"

    # -- G1a, G1b, lost writes -------------------------------------------------------------------

    def _judge_outcomes(self) -> None:
        for transaction in self._history.transactions:
            elements = [element for key in transaction.appends.values() for element in key]
            there = [element for element in elements if element in self._place]
            gone = [element for element in elements if element not in self._place]
            if transaction.outcome is Outcome.ABORTED and there:
                self._found("G1a", f"{transaction.name} was aborted, and {there} is there")
            elif transaction.outcome is Outcome.COMMITTED and gone:
                self._found(LOST, f"{transaction.name} was committed, and {gone} is not there")
            elif transaction.outcome is Outcome.UNKNOWN and there and gone:
                self._found("G1b", f"{transaction.name}: {there} is there, and {gone} is not")

    def _judge_reads(self) -> None:
        """Compare what each client read of each key with the key's order, from its start on."""
        positions: dict[tuple[str, str], int] = {}
        seen: dict[str, set[int]] = {}
        skipped: list[tuple[str, str, str]] = []
        for transaction in self._history.transactions:
            for key, elements in transaction.reads.items():
                owners = {self._owner[e] for e in elements if e in self._owner}
                seen.setdefault(transaction.client, set()).update(owners)
                for element in elements:
                    at = self._place_of_read(transaction, key, element)
                    if at is None:
                        continue
                    due = positions.get((transaction.client, key), at)
                    if at < due:
                        text = (
                            f"{transaction.client} read {element} of {key} behind what follows it"
                        )
                        self._found(DISORDER, text)
                        continue
                    order = self._history.order[key]
                    skipped += [(transaction.client, key, order[index]) for index in range(due, at)]
                    positions[transaction.client, key] = at + 1
        for client, key, element in skipped:
            is_in_part = self._owner.get(element) in seen[client]
            kind = "G1b" if is_in_part else DISORDER
            self._found(kind, f"{client} read past {self._name(element)} in {key}")

    def _place_of_read(self, read: Transaction, key: str, element: str) -> int | None:
        """Return the index of an element that was read; None if it is an anomaly."""
        place = self._place.get(element)
        if place is not None and place[0] == key:
            return place[1]
        owner = self._owner.get(element)
        if owner is None:
            self._found(STRAY, f"{read.client} read {element} in {key}: of no transaction")
        elif self._transaction(owner).outcome is Outcome.ABORTED:
            self._found("G1a", f"{read.client} read {self._name(element)}, which was aborted")
        else:
            self._found(LOST, f"{read.client} read {self._name(element)}, which is not there")
        return None

    # -- G0, G1c ---------------------------------------------------------------------------------

    def _judge_cycles(self) -> None:
        graph, names = self._events()
        writes = find_cycles(graph.without("read"))
        for cycle in writes:
            self._found("G0", _shown(cycle, names))
        known = {node for cycle in writes for node, _, _ in cycle}
        for cycle in find_cycles(graph):
            nodes = {node for node, _, _ in cycle}
            if any(label == "read" for _, label, _ in cycle) and not nodes & known:
                self._found("G1c", _shown(cycle, names))

    def _events(self) -> tuple[Graph, list[str]]:
        """Return the graph of events, and the name of each node."""
        graph, names = Graph(), []
        for transaction in self._history.transactions:
            for event in ("begins", "is decided"):
                graph.add_node()
                names.append(f"{transaction.name} {event}")
        for key, elements in self._history.order.items():
            before: int | None = None
            for element in elements:
                node = graph.add_node()
                names.append(f"{element} is appended to {key}")
                if before is not None:
                    graph.add_edge(before, "log", node)
                before = node
                owner = self._owner.get(element)
                if owner is not None:
                    graph.add_edge(2 * owner, "part", node)
                    graph.add_edge(node, "part", 2 * owner + 1)
        self._add_reads(graph)
        names += self._add_times(graph)
        return graph, names

    def _add_reads(self, graph: Graph) -> None:
        for number, transaction in enumerate(self._history.transactions):
            graph.add_edge(2 * number, "part", 2 * number + 1)
            elements = [element for key in transaction.reads.values() for element in key]
            owners = dict.fromkeys(self._owner[e] for e in elements if e in self._owner)
            self._report.read_from += len(owners) if transaction.appends else 0
            for owner in owners:
                graph.add_edge(2 * owner + 1, "read", 2 * number)

    def _add_times(self, graph: Graph) -> Iterator[str]:
        """Add a node for each time at which a transaction began; return their names."""
        transactions = self._history.transactions
        starts = sorted({transaction.start for transaction in transactions})
        nodes = [graph.add_node() for _ in starts]
        for before, after in pairwise(nodes):
            graph.add_edge(before, "time", after)
        index = dict(zip(starts, nodes, strict=True))
        for number, transaction in enumerate(transactions):
            graph.add_edge(index[transaction.start], "time", 2 * number)
            later = bisect_right(starts, transaction.end)
            if later < len(nodes):
                graph.add_edge(2 * number + 1, "time", nodes[later])
        return (f"{start:.6f} s" for start in starts)

    def _count_interleaved(self) -> int:
        found: dict[int, None] = {}
        for elements in self._history.order.values():
            owners = [self._owner.get(element) for element in elements]
            last: dict[int | None, int] = {}
            for index, owner in enumerate(owners):
                if owner is not None and last.get(owner, index - 1) < index - 1:
                    found[owner] = None
                last[owner] = index
        return len(found)


def _shown(cycle: list[Edge], names: list[str]) -> str:
    steps = [f"{names[start]} -{label}->" for start, label, _ in cycle[:STEPS_SHOWN_MAX]]
    more = f" ... {len(cycle)} steps" if len(cycle) > STEPS_SHOWN_MAX else ""
    return " ".join(steps) + f" {names[cycle[-1][2]]}{more}"
