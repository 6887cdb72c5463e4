"""Check of a message against its schema, before kafka-python decodes it.

Leaves decoding to `kafka.messages`. The library does not check what it reads: it shortens a field
that ends after the frame, accepts null everywhere, and reads a varint of a megabyte.

Format of a schema: Kafka's message definitions (JSON). A field has a type and the versions that
contain it; `[]` before a type denotes an array; a type with fields is a structure.

Invariants: a count is compared with the remaining bytes, and all arrays of one message together
have at most `ELEMENTS_MAX` elements in a request, `ANSWER_ELEMENTS_MAX` in others, tagged fields
included; null occurs only where the schema allows it; a string has at most `STRING_BYTES_MAX`; the
content of a known tagged field has the size that the field states. Bytes after the message are
ignored, as in Kafka.

Source: KIP-482, KIP-893.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.primitives import (
    ANSWER_ELEMENTS_MAX,
    ELEMENTS_MAX,
    INT16,
    INT32,
    check_string_size,
    read_varint,
    too_many_elements,
)

TAGGED_COPY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum number of bytes that the library may copy for tagged fields of one message: it copies the
rest of the message for each structure that has tagged fields."""

FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "bitfield": 4,
}

Json: TypeAlias = "str | int | bool | Sequence[Json] | Mapping[str, Json] | None"
Schema: TypeAlias = Mapping[str, Json]


@dataclass(slots=True)
class Room:
    """The resources that a message may still use."""

    elements_max: int
    elements: int
    tagged_copy_bytes: int = TAGGED_COPY_BYTES_MAX


FieldCheck = Callable[[memoryview, int, Room], int]
"""Checks one value at a position; returns the position after it or raises KafkaFrameError."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size limits of one value, and its check."""

    bytes_min: int
    check: FieldCheck
    bytes_fixed: int | None = None
    """None if the size depends on the content."""


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    is_flexible: bool
    is_tag: bool = False
    """Whether this is inside a tagged field: there the library reads no tagged fields."""


def guard_of(schema: Schema, version: int) -> Callable[[memoryview], None]:
    """Return a check that raises KafkaFrameError unless bytes begin with a message of a version."""
    is_flexible = is_in(schema.get("flexibleVersions"), version)
    shape = _structure(fields_of(schema), _Version(version, is_flexible))

    elements_max = ELEMENTS_MAX if schema.get("type") == "request" else ANSWER_ELEMENTS_MAX

    def check(data: memoryview) -> None:
        try:
            shape.check(data, 0, Room(elements_max, elements_max))
        except (IndexError, struct.error) as error:
            raise KafkaFrameError(f"the frame ends before its message does: {error}") from error

    return check


def is_in(versions: Json, number: int) -> bool:
    """Return whether a version is among those that a schema states for a field."""
    if not isinstance(versions, str) or versions == "none":
        return False
    first, dash, last = versions.rstrip("+").partition("-")
    if dash:
        return int(first) <= number <= int(last)
    return number >= int(first) if versions.endswith("+") else number == int(first)


def fields_of(schema: Schema) -> list[Schema]:
    """Return the fields of a message, or of a structure in it."""
    fields = schema["fields"]
    assert isinstance(fields, Sequence)
    return [field for field in fields if isinstance(field, Mapping)]


def _structure(fields: list[Schema], version: _Version) -> Shape:
    present = [field for field in fields if is_in(field["versions"], version.number)]
    tagged = [field for field in present if is_in(field.get("taggedVersions"), version.number)]
    shapes = [_field(mapping, version) for mapping in present if mapping not in tagged]
    if version.is_flexible:
        shapes.append(_tags(tagged, version))
    sizes = [shape.bytes_fixed for shape in shapes]
    fixed = [size for size in sizes if size is not None]
    if len(fixed) == len(sizes):
        return _fixed(sum(fixed))
    checks = [shape.check for shape in _joined(shapes)]

    def check(data: memoryview, position: int, room: Room) -> int:
        for check_field in checks:
            position = check_field(data, position, room)
        return position

    return Shape(sum(shape.bytes_min for shape in shapes), check)


def _joined(shapes: list[Shape]) -> list[Shape]:
    joined: list[Shape] = []
    for shape in shapes:
        before = joined[-1].bytes_fixed if joined else None
        if shape.bytes_fixed is not None and before is not None:
            joined[-1] = _fixed(before + shape.bytes_fixed)
        else:
            joined.append(shape)
    return joined


def _fixed(size: int) -> Shape:
    def check(data: memoryview, position: int, room: Room) -> int:
        del room
        if size > len(data) - position:
            raise KafkaFrameError(f"fields need {size} B, but {len(data) - position} B are left")
        return position + size

    return Shape(size, check, size)


def _field(field: Schema, version: _Version) -> Shape:
    kind = field["type"]
    assert isinstance(kind, str)
    is_nullable = is_in(field.get("nullableVersions"), version.number)
    if kind.startswith("[]"):
        if "fields" in field:
            element = _structure(fields_of(field), version)
        else:
            element = _field({"type": kind[2:]}, version)
        return _array(element, version, is_nullable=is_nullable)
    if "fields" in field:
        return _optional(_structure(fields_of(field), version), is_nullable=is_nullable)
    if kind in FIXED_BYTES:
        return _fixed(FIXED_BYTES[kind])
    assert kind in ("string", "bytes", "records"), kind
    return _sized(version, is_string=kind == "string", is_nullable=is_nullable)


def _sized(version: _Version, *, is_string: bool, is_nullable: bool) -> Shape:
    length = INT16 if is_string else INT32
    read = _length_reader(length, version, is_nullable=is_nullable)

    def check(data: memoryview, position: int, room: Room) -> int:
        del room
        size, position = read(data, position)
        if size > len(data) - position:
            raise KafkaFrameError(f"a field has {size} B, but {len(data) - position} B are left")
        if is_string:
            check_string_size(size)
        return position + max(size, 0)

    return Shape(1 if version.is_flexible else length.size, check)


def _array(element: Shape, version: _Version, *, is_nullable: bool) -> Shape:
    read = _length_reader(INT32, version, is_nullable=is_nullable)
    check_element, bytes_min, bytes_fixed = element.check, element.bytes_min, element.bytes_fixed

    def check(data: memoryview, position: int, room: Room) -> int:
        count, position = read(data, position)
        if count * bytes_min > len(data) - position:
            raise KafkaFrameError(f"{count} elements do not fit in {len(data) - position} B")
        room.elements -= max(count, 0)
        if room.elements < 0:
            raise too_many_elements(room.elements_max)
        if bytes_fixed is not None:
            return position + max(count, 0) * bytes_fixed
        for _ in range(count):
            position = check_element(data, position, room)
        return position

    return Shape(1 if version.is_flexible else INT32.size, check)


def _length_reader(
    length: struct.Struct, version: _Version, *, is_nullable: bool
) -> Callable[[memoryview, int], tuple[int, int]]:
    least = -1 if is_nullable else 0

    def read(data: memoryview, position: int) -> tuple[int, int]:
        if version.is_flexible:
            size, position = read_varint(data, position)
            size -= 1
        else:
            (size,) = length.unpack_from(data, position)
            position += length.size
        if size < least:
            raise KafkaFrameError(f"a length is {size}, which is not allowed")
        return size, position

    return read


def _optional(shape: Shape, *, is_nullable: bool) -> Shape:
    if not is_nullable:
        return shape

    def check(data: memoryview, position: int, room: Room) -> int:
        is_null = data[position] == 0xFF  # noqa: PLR2004 - the i8 of -1
        return position + 1 if is_null else shape.check(data, position + 1, room)

    return Shape(1, check)


def _tags(fields: list[Schema], version: _Version) -> Shape:
    inner = _Version(version.number, is_flexible=True, is_tag=True)
    known = {field["tag"]: _field(field, inner).check for field in fields}

    def check(data: memoryview, position: int, room: Room) -> int:
        if not data[position]:
            return position + 1
        if version.is_tag:
            raise KafkaFrameError("a tagged field contains tagged fields")
        room.tagged_copy_bytes -= len(data) - position
        if room.tagged_copy_bytes < 0:
            raise KafkaFrameError("too many structures with tagged fields")
        count, position = read_varint(data, position)
        room.elements -= count
        if room.elements < 0:
            raise too_many_elements(room.elements_max)
        for _ in range(count):
            number, position = read_varint(data, position)
            size, position = read_varint(data, position)
            end = position + size
            if end > len(data):
                raise KafkaFrameError(
                    f"a tagged field has {size} B, but {len(data) - position} B are left"
                )
            if number in known and known[number](data[:end], position, room) != end:
                raise KafkaFrameError(
                    f"the content of tagged field {number} does not have {size} B"
                )
            position = end
        return position

    return Shape(1, check)
