"""Requests of producers and about transactions, for users with different rights."""

from collections.abc import Mapping
from typing import Final

from tests.differential.group_cases import FIND, TRANSACTION
from tests.differential.security.calls import Call, Cell
from tests.differential.transaction_cases import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    DESCRIBE,
    END,
    INIT,
    LIST,
    Transactional,
    init_values,
)
from tests.differential.wire import Tree

WRITE_MARKERS: Final = ("WriteTxnMarkers", 27)
ABSENT_TOPIC: Final = "absent-topic"
FAR_PRODUCER: Final = 999_999


def _other(cell: Cell) -> Transactional:
    """Return a producer that does not have the id: what it sends changes nothing."""
    return Transactional(cell.run, cell.transactional_id, FAR_PRODUCER, 0)


def _added(cell: Cell, *topics: str) -> Mapping[str, Tree]:
    rows: Tree = [{"name": topic, "partitions": [0]} for topic in topics]
    return {**_other(cell).partitions(cell.topic), "v3_and_below_topics": rows}


def _verified(cell: Cell) -> Mapping[str, Tree]:
    topics: Tree = [{"name": cell.topic, "partitions": [0]}]
    transaction: Mapping[str, Tree] = {
        "transactional_id": cell.transactional_id,
        "producer_id": FAR_PRODUCER,
        "producer_epoch": 0,
        "verify_only": True,
        "topics": topics,
    }
    return {"transactions": [transaction]}


def _marked(cell: Cell) -> Mapping[str, Tree]:
    topics: Tree = [{"name": cell.own(ABSENT_TOPIC), "partition_indexes": [0]}]
    marker: Mapping[str, Tree] = {
        "producer_id": FAR_PRODUCER,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": topics,
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


TRANSACTION_CALLS: Final = (
    Call(
        "find a transaction",
        FIND,
        3,
        lambda c: {"key": c.transactional_id, "key_type": TRANSACTION},
    ),
    Call(
        "find transactions",
        FIND,
        4,
        lambda c: {"key_type": TRANSACTION, "coordinator_keys": [c.transactional_id, c.own("t")]},
    ),
    Call("init, idempotent", INIT, 3, lambda _: init_values(None)),
    Call("init, transactional", INIT, 3, lambda c: init_values(c.own("transactional"))),
    Call("init, empty id", INIT, 3, lambda _: init_values("")),
    Call("add partitions", ADD_PARTITIONS, 3, lambda c: _added(c, c.topic)),
    Call("add partitions, absent", ADD_PARTITIONS, 3, lambda c: _added(c, c.own(ABSENT_TOPIC))),
    Call(
        "add partitions of two",
        ADD_PARTITIONS,
        3,
        lambda c: _added(c, c.topic, c.own(ABSENT_TOPIC)),
    ),
    Call("verify partitions", ADD_PARTITIONS, 4, _verified),
    Call("add offsets", ADD_OFFSETS, 3, lambda c: _other(c).offsets_of(c.group)),
    Call("commit offsets", COMMIT_OFFSETS, 3, lambda c: _other(c).offsets(c.group, c.topic, 1)),
    Call(
        "commit offsets, absent",
        COMMIT_OFFSETS,
        3,
        lambda c: _other(c).offsets(c.group, c.own(ABSENT_TOPIC), 1),
    ),
    Call("end", END, 3, lambda c: _other(c).end(committed=True)),
    Call("write markers", WRITE_MARKERS, 1, _marked),
    Call(
        "describe transactions",
        DESCRIBE,
        0,
        lambda c: {"transactional_ids": [c.transactional_id, c.own("no-transaction")]},
    ),
    Call(
        "list transactions",
        LIST,
        1,
        lambda _: {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
        listed=("transaction_states", "transactional_id"),
    ),
)
