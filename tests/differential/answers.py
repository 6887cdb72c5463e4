"""Reduction of answers to the values on which two brokers must agree.

Leaves the requests to `run`. Error codes, offsets, counts, states and names are kept; ids, times,
hosts, texts, and the numbers of brokers and replicas are not.

Invariants: pure. A reduced answer is JSON, and equal for two brokers that behave alike.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, Union, cast

from tests.differential.batches import summary
from tests.differential.wire import Tree

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007  # names itself

KEPT: Final = frozenset(
    {
        "aborted_transactions",
        "assignment",
        "assignment_epoch",
        "assignor_name",
        "base_offset",
        "committed_offset",
        "end_offset",
        "error_code",
        "first_offset",
        "generation_id",
        "group_epoch",
        "group_id",
        "group_instance_id",
        "group_state",
        "group_type",
        "high_watermark",
        "index",
        "is_internal",
        "is_read_only_or_sensitive",
        "key",
        "last_sequence",
        "last_stable_offset",
        "log_start_offset",
        "low_watermark",
        "member_epoch",
        "metadata",
        "name",
        "num_partitions",
        "offset",
        "partition",
        "partition_error_code",
        "partition_index",
        "partitions_count",
        "preferred_read_replica",
        "producer_epoch",
        "protocol",
        "protocol_data",
        "protocol_name",
        "protocol_type",
        "resource_name",
        "resource_type",
        "state",
        "target_partitions",
        "timestamp",
        "topic",
        "topic_name",
        "transaction_state",
        "transactional_id",
        "value",
    }
)
PRESENCE: Final = frozenset(
    {
        "leader",
        "leader_id",
        "log_append_time_ms",
        "member_id",
        "producer_id",
        "session_id",
        "topic_id",
    }
)
"""Of these only whether there is one is kept."""
DROPPED: Final = frozenset(
    {
        "authorized_operations",
        "brokers",
        "cluster_authorized_operations",
        "cluster_id",
        "controller_id",
        "coordinator_epoch",
        "current_leader",
        "current_leader_epoch",
        "diverging_epoch",
        "eligible_leader_replicas",
        "endpoint_type",
        "error_message",
        "finalized_features",
        "isr_nodes",
        "last_known_elr",
        "node_endpoints",
        "offline_replicas",
        "record_errors",
        "replica_nodes",
        "snapshot_id",
        "supported_features",
        "synonyms",
        "throttle_time_ms",
        "topic_authorized_operations",
    }
)
MEANINGLESS_WITH_ERROR: Final = frozenset(
    {
        "aborted_transactions",
        "base_offset",
        "high_watermark",
        "last_stable_offset",
        "log_append_time_ms",
        "log_start_offset",
        "offset",
        "preferred_read_replica",
        "timestamp",
    }
)
NAMING: Final = ("name", "topic", "group_id", "partition_index", "partition", "index")
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def reduce(
    answer: Tree, prefix: str, without: Sequence[str] = (), kept: frozenset[str] = KEPT
) -> Json:
    """Return the values to compare.

    `prefix` is the text that this run put before every name; fields in `without` are left out too.
    `kept` names the fields whose values are compared.
    """
    return _without(_reduce(answer, prefix, kept), without)


def at(answer: Tree, *path: str | int) -> Tree:
    """Return a part of an answer; None if there is no such part."""
    for step in path:
        if isinstance(step, str):
            answer = answer.get(step) if isinstance(answer, Mapping) else None
        elif isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
            answer = answer[step] if -len(answer) <= step < len(answer) else None
        else:
            return None
    return answer


def number(answer: Tree, *path: str | int) -> int:
    """Return a number of an answer; -1 if it is absent, so that a script can continue."""
    found = at(answer, *path)
    return found if isinstance(found, int) else -1


def text(answer: Tree, *path: str | int) -> str:
    """Return a text of an answer; "" if it is absent."""
    found = at(answer, *path)
    return found if isinstance(found, str) else ""


def error_codes(answer: Tree) -> list[int]:
    """Return every error code in an answer."""
    if isinstance(answer, Mapping):
        own = [v for k, v in answer.items() if k.endswith("error_code") and isinstance(v, int)]
        return own + [code for value in answer.values() for code in error_codes(value)]
    if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
        return [code for value in answer for code in error_codes(value)]
    return []


def _reduce(value: Tree, prefix: str, kept: frozenset[str]) -> Json:
    if isinstance(value, Mapping):
        ignored = MEANINGLESS_WITH_ERROR if value.get("error_code") else frozenset()
        return {
            name: reduced
            for name, part in value.items()
            for reduced in [_field(name, part, prefix, kept)]
            if reduced is not _NOTHING and name not in ignored
        }
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, (set, frozenset)):
        return cast("Json", sorted(value))
    if isinstance(value, Sequence):
        return _sorted([_reduce(item, prefix, kept) for item in value])
    return cast("Json", value)


def _without(value: Json, names: Sequence[str]) -> Json:
    if isinstance(value, dict):
        return {k: _without(part, names) for k, part in value.items() if k not in names}
    if isinstance(value, list):
        return [_without(item, names) for item in value]
    return value


_NOTHING: Final[Json] = "\0nothing"


def _field(name: str, value: Tree, prefix: str, kept: frozenset[str]) -> Json:
    if (name in DROPPED and name not in kept) or name.startswith("_"):
        return _NOTHING
    if name == "records":
        return cast("Json", summary(bytes(cast("bytes", value)))) if value else []
    if name == "aborted_transactions" and value is None:
        return []
    if name in PRESENCE:
        return _is_present(value, least=1 if name in ("session_id", "log_append_time_ms") else 0)
    if isinstance(value, Mapping):
        return _reduce(value, prefix, kept)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return _reduce(value, prefix, kept)
    if name == "timestamp" and isinstance(value, int):
        return value if value < 0 else "a time"
    return _reduce(value, prefix, kept) if name in kept else _NOTHING


def _is_present(value: Tree, least: int) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(value)
    if isinstance(value, int):
        return value >= least
    return str(value) not in ("", NO_UUID)


def _sorted(items: list[Json]) -> list[Json]:
    """Order lists of structures, which brokers send in any order."""
    if any(isinstance(item, (dict, int)) for item in items):
        return sorted(items, key=_place)
    return items


def _place(item: Json) -> tuple[str, str]:
    """Order structures by their names, so that one difference moves no others."""
    names = [str(item.get(name)) for name in NAMING] if isinstance(item, dict) else []
    return " ".join(names), json.dumps(item, sort_keys=True)
