"""Requests about topics, for users with different rights."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.batches import TRANSACTIONAL, Batch
from tests.differential.config_cases import (
    ALTER,
    BROKER,
    CHANGE,
    SET,
    TOPIC,
    change_values,
    describe_values,
)
from tests.differential.config_cases import DESCRIBE as DESCRIBE_CONFIGS
from tests.differential.fetch_cases import UNKNOWN_ID, fetch_by_id, fetch_values
from tests.differential.offset_cases import DELETE as DELETE_RECORDS
from tests.differential.offset_cases import EPOCHS, list_values
from tests.differential.run import FETCH, LIST_OFFSETS, METADATA, PRODUCE, produce_values
from tests.differential.security.calls import DOOMED_BY_ID, DOOMED_BY_NAME, GROWN, Call, Cell
from tests.differential.topic_cases import (
    CREATE,
    DELETE,
    DESCRIBE_PARTITIONS,
    GROW,
    TIMEOUT_MS,
    create_values,
    new_topic,
)
from tests.differential.transaction_cases import DESCRIBE_PRODUCERS
from tests.differential.wire import Tree

GROUP_KIND: Final = 32
LOGGER_KIND: Final = 8
ABSENT: Final = "absent"
MOVING: Final = ("base_offset", "high_watermark", "last_stable_offset", "offset", "records")
"""Fields that a Produce of another user changes."""


def _metadata(
    *topics: Mapping[str, Tree], creates: bool = False, operations: bool = False
) -> Mapping[str, Tree]:
    return {
        "topics": list(topics),
        "allow_auto_topic_creation": creates,
        "include_topic_authorized_operations": operations,
    }


def _produced(cell: Cell, *topics: str) -> Mapping[str, Tree]:
    rows: list[Mapping[str, Tree]] = []
    for topic in topics:
        found = produce_values(topic, Batch())["topic_data"]
        assert isinstance(found, Sequence)
        rows += found  # type: ignore[arg-type]
    return {**produce_values(cell.topic, Batch()), "topic_data": rows}


def _transactional(cell: Cell) -> Batch:
    """Return a batch of the shared producer, which has no transaction."""
    return Batch(
        attributes=TRANSACTIONAL,
        producer_id=cell.shared.producer_id,
        producer_epoch=cell.shared.producer_epoch,
        base_sequence=0,
    )


def _deleted(*topics: Mapping[str, Tree]) -> Mapping[str, Tree]:
    return {"topics": list(topics), "timeout_ms": TIMEOUT_MS}


def _grown(name: str) -> Mapping[str, Tree]:
    topics: Tree = [{"name": name, "count": 2, "assignments": None}]
    return {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": False}


def _epochs(topic: str) -> Mapping[str, Tree]:
    part: Mapping[str, Tree] = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}


def _records_deleted(topic: str) -> Mapping[str, Tree]:
    part: Mapping[str, Tree] = {"partition_index": 0, "offset": 0}
    return {"topics": [{"name": topic, "partitions": [part]}], "timeout_ms": TIMEOUT_MS}


def _replaced(topic: str) -> Mapping[str, Tree]:
    settings: Tree = [{"name": "retention.ms", "value": "-1"}]
    resource: Mapping[str, Tree] = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configs": settings,
    }
    return {"resources": [resource], "validate_only": False}


def _changed(name: str, kind: int = TOPIC) -> Mapping[str, Tree]:
    return change_values(name, ("retention.ms", SET, "7200001"), kind=kind, validate_only=True)


def _by_id(cell: Cell) -> Mapping[str, Tree]:
    return _metadata({"name": None, "topic_id": cell.id_of(cell.topic)})


def _partitions(*names: str) -> Mapping[str, Tree]:
    return {"topics": [{"name": name} for name in names], "response_partition_limit": 100}


def _producers(topic: str) -> Mapping[str, Tree]:
    return {"topics": [{"name": topic, "partition_indexes": [0]}]}


TOPIC_CALLS: Final = (
    Call("metadata by name", METADATA, 9, lambda c: _metadata({"name": c.topic})),
    Call(
        "metadata with operations",
        METADATA,
        9,
        lambda c: _metadata({"name": c.topic}, operations=True),
    ),
    Call("metadata, absent", METADATA, 9, lambda c: _metadata({"name": c.own(ABSENT)})),
    Call(
        "metadata, absent, with operations",
        METADATA,
        9,
        lambda c: _metadata({"name": c.own(ABSENT)}, operations=True),
    ),
    Call("metadata, invalid name", METADATA, 9, lambda _: _metadata({"name": "a b"})),
    Call("metadata by id", METADATA, 12, _by_id),
    Call(
        "metadata by unknown id",
        METADATA,
        12,
        lambda _: _metadata({"name": None, "topic_id": UNKNOWN_ID}),
    ),
    Call(
        "metadata of all",
        METADATA,
        9,
        lambda _: {"topics": None, "allow_auto_topic_creation": False},
        listed=("topics", "name"),
    ),
    Call(
        "metadata of two",
        METADATA,
        9,
        lambda c: _metadata({"name": c.topic}, {"name": c.own(ABSENT)}),
    ),
    Call("partitions", DESCRIBE_PARTITIONS, 0, lambda c: _partitions(c.topic)),
    Call(
        "partitions of two", DESCRIBE_PARTITIONS, 0, lambda c: _partitions(c.topic, c.own(ABSENT))
    ),
    Call(
        "produce",
        PRODUCE,
        9,
        lambda c: produce_values(c.own(GROWN), Batch()),
    ),
    Call("produce, shared", PRODUCE, 9, lambda c: produce_values(c.topic, Batch()), MOVING),
    Call("produce, absent", PRODUCE, 9, lambda c: produce_values(c.own(ABSENT), Batch())),
    Call("produce to two", PRODUCE, 9, lambda c: _produced(c, c.topic, c.own(ABSENT)), MOVING),
    Call(
        "produce without acks of others",
        PRODUCE,
        9,
        lambda c: produce_values(c.own(GROWN), Batch(), acks=1),
    ),
    Call(
        "produce with a transactional id",
        PRODUCE,
        9,
        lambda c: produce_values(
            c.own(GROWN), _transactional(c), transactional_id=c.transactional_id
        ),
    ),
    Call("fetch", FETCH, 12, lambda c: fetch_values([(c.topic, 0, 0)]), MOVING),
    Call("fetch, absent", FETCH, 12, lambda c: fetch_values([(c.own(ABSENT), 0, 0)])),
    Call(
        "fetch of two",
        FETCH,
        12,
        lambda c: fetch_values([(c.topic, 0, 0), (c.own(ABSENT), 0, 0)]),
        MOVING,
    ),
    Call("fetch by id", FETCH, 13, lambda c: fetch_by_id(c.id_of(c.topic), 0, 0), MOVING),
    Call("fetch by unknown id", FETCH, 13, lambda _: fetch_by_id(UNKNOWN_ID, 0, 0)),
    Call("offsets", LIST_OFFSETS, 5, lambda c: list_values(c.topic, -2)),
    Call("offsets, absent", LIST_OFFSETS, 5, lambda c: list_values(c.own(ABSENT), -2)),
    Call("epochs", EPOCHS, 4, lambda c: _epochs(c.topic), ("end_offset",)),
    Call("epochs, absent", EPOCHS, 4, lambda c: _epochs(c.own(ABSENT))),
    Call("producers", DESCRIBE_PRODUCERS, 0, lambda c: _producers(c.topic)),
    Call("producers, absent", DESCRIBE_PRODUCERS, 0, lambda c: _producers(c.own(ABSENT))),
    Call("delete records", DELETE_RECORDS, 2, lambda c: _records_deleted(c.topic)),
    Call("delete records, absent", DELETE_RECORDS, 2, lambda c: _records_deleted(c.own(ABSENT))),
    Call(
        "describe settings",
        DESCRIBE_CONFIGS,
        4,
        lambda c: describe_values(TOPIC, c.topic, ["cleanup.policy"]),
    ),
    Call(
        "describe settings, absent",
        DESCRIBE_CONFIGS,
        4,
        lambda c: describe_values(TOPIC, c.own(ABSENT), ["cleanup.policy"]),
    ),
    Call(
        "describe settings of a broker",
        DESCRIBE_CONFIGS,
        4,
        lambda _: describe_values(BROKER, "1", ["no.such.setting"]),
    ),
    Call(
        "describe settings of a group",
        DESCRIBE_CONFIGS,
        4,
        lambda c: describe_values(GROUP_KIND, c.group, ["no.such.setting"]),
    ),
    Call("replace settings", ALTER, 2, lambda c: _replaced(c.own(GROWN))),
    Call("replace settings, absent", ALTER, 2, lambda c: _replaced(c.own(ABSENT))),
    Call("change settings", CHANGE, 1, lambda c: _changed(c.topic)),
    Call("change settings, absent", CHANGE, 1, lambda c: _changed(c.own(ABSENT))),
    Call("change settings of a broker", CHANGE, 1, lambda _: _changed("1", BROKER)),
    Call("grow", GROW, 2, lambda c: _grown(c.own(GROWN))),
    Call("grow, absent", GROW, 2, lambda c: _grown(c.own(ABSENT))),
    Call(
        "create, validate only",
        CREATE,
        7,
        lambda c: create_values(new_topic(c.own("validated")), validate_only=True),
        ("configs",),
    ),
    Call("create", CREATE, 7, lambda c: create_values(new_topic(c.own("created"))), ("configs",)),
    Call("create, exists", CREATE, 7, lambda c: create_values(new_topic(c.topic)), ("configs",)),
    Call("create, invalid", CREATE, 7, lambda _: create_values(new_topic("a b")), ("configs",)),
    Call(
        "create two",
        CREATE,
        5,
        lambda c: create_values(new_topic(c.own("second")), new_topic(c.topic)),
        ("configs",),
    ),
    Call("delete", DELETE, 6, lambda c: _deleted({"name": c.own(DOOMED_BY_NAME)})),
    Call("delete, absent", DELETE, 6, lambda c: _deleted({"name": c.own(ABSENT)})),
    Call(
        "delete by id",
        DELETE,
        6,
        lambda c: _deleted({"name": None, "topic_id": c.id_of(c.own(DOOMED_BY_ID))}),
    ),
    Call(
        "delete by unknown id",
        DELETE,
        6,
        lambda _: _deleted({"name": None, "topic_id": UNKNOWN_ID}),
    ),
    Call(
        "metadata, made on demand",
        METADATA,
        9,
        lambda c: _metadata({"name": c.own("demanded")}, creates=True),
        is_patient=True,
    ),
)
