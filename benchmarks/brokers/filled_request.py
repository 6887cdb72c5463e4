"""Bodies of requests with one array that is filled up, by the schemas of Kafka's messages.

Leaves headers, and sending, to the scripts.

Format of a schema: see `broker_layer.kafka.schema_guard`. A way is the names of arrays from the
message to the filled one. Arrays on the way have one element, those inside a filled element too,
and all others none.

Source: KIP-482.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.primitives import NO_TAGS, count_of, string, varint
from broker_layer.kafka.schema_guard import FIXED_BYTES, Schema, fields_of, is_in

Way = tuple[str, ...]
TOPIC_RESOURCE: Final = 2
PARTITIONS: Final = "partition"
RESOURCE_TYPES: Final = ("resourcetype", "resourcetypefilter")
VALUES: Final = {"acks": -1, "timeoutms": 1_000}
OUTER_NAME: Final = "group"
"""Every text outside of the filled array."""


@dataclass(slots=True)
class Filling:
    """What elements hold: numbers that rise, and names that differ, or one name for all."""

    version: int
    is_flexible: bool
    same_name: str | None = None
    number: int = 0

    def next(self) -> int:
        """Return the next number."""
        self.number += 1
        return self.number


def ways_of(schema: Schema, version: int, before: Way = ()) -> Iterator[Way]:
    """Yield the way to each array of a version, tagged fields left out."""
    for field in _present(schema, version):
        way = before
        if str(field["type"]).startswith("[]"):
            way = (*before, str(field["name"]))
            yield way
        if "fields" in field:
            yield from ways_of(field, version, way)


def filled(schema: Schema, way: Way, elements: int, filling: Filling) -> bytes:
    """Return the body of a request with at most so many elements in all its arrays."""
    room = elements - len(way) + 1
    return _structure(schema, way, room, filling)


def _present(schema: Schema, version: int) -> Iterator[Schema]:
    for field in fields_of(schema):
        if is_in(field["versions"], version) and not is_in(field.get("taggedVersions"), version):
            yield field


def _structure(
    schema: Schema, way: Way | None, room: int, filling: Filling, *, inside: bool = False
) -> bytes:
    parts = [
        _field(field, way, room, filling, inside=inside)
        for field in _present(schema, filling.version)
    ]
    return b"".join(parts) + (NO_TAGS if filling.is_flexible else b"")


def _field(field: Schema, way: Way | None, room: int, filling: Filling, *, inside: bool) -> bytes:
    kind, name = str(field["type"]), str(field["name"])
    if not kind.startswith("[]"):
        if is_in(field.get("nullableVersions"), filling.version) and not inside:
            return _null(field, filling)
        if "fields" in field:
            return _structure(field, None, 0, filling, inside=inside)
        return _value(kind, name, field, filling, inside=inside)
    count, rest = int(inside), None
    if way and way[0] == name:
        rest = way[1:]
        count = 1 if rest else room // _elements_in(field, filling.version)
    is_filled = inside or rest == ()
    if "fields" in field:
        rows = [_structure(field, rest, room, filling, inside=is_filled) for _ in range(count)]
    else:
        rows = [_value(kind[2:], name, field, filling, inside=True) for _ in range(count)]
    return count_of(count, is_flexible=filling.is_flexible) + b"".join(rows)


def _elements_in(field: Schema, version: int) -> int:
    """Return how many elements a filled element of an array counts for."""
    if "fields" not in field:
        return 1
    inner = [part for part in _present(field, version) if str(part["type"]).startswith("[]")]
    return 1 + sum(_elements_in(part, version) for part in inner)


def _null(field: Schema, filling: Filling) -> bytes:
    if "fields" in field:
        return b"\xff"
    if filling.is_flexible:
        return varint(0)
    return struct.pack(">h" if field["type"] == "string" else ">i", -1)


def _value(kind: str, name: str, field: Schema, filling: Filling, *, inside: bool) -> bytes:
    if kind == "string":
        text = filling.same_name or f"e{filling.next()}"
        text = text if inside else OUTER_NAME
        return string(text, is_flexible=filling.is_flexible)
    if kind in ("bytes", "records"):
        return varint(1) if filling.is_flexible else struct.pack(">i", 0)
    if kind == "uuid":
        return filling.next().to_bytes(FIXED_BYTES[kind], "big")
    if kind == "float64":
        return struct.pack(">d", 0.0)
    return _integer(name.lower(), field, filling).to_bytes(FIXED_BYTES[kind], "big", signed=True)


def _integer(name: str, field: Schema, filling: Filling) -> int:
    if PARTITIONS in name:
        return filling.next()
    if name in RESOURCE_TYPES:
        return TOPIC_RESOURCE
    if name in VALUES:
        return VALUES[name]
    try:
        return int(str(field.get("default")), 0)
    except ValueError:
        return 0
