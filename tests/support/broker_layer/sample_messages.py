"""Messages of a schema with random contents, and null where the schema allows it."""

import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer

from broker_layer.kafka.schema_guard import Json

INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS: Final = ("", "a", "topic-7", "grüße", "x" * 200)


def sample(kind: type[ApiMessage], version: int, rng: random.Random) -> ApiMessage:
    """Make a message with every field of the version."""
    return kind(version=version, **_fields(kind, kind.json, version, rng))


def is_in(versions: Json, number: int) -> bool:
    if not isinstance(versions, str) or versions == "none":
        return False
    first, _, last = versions.rstrip("+").partition("-")
    highest = 32767 if versions.endswith("+") else int(last or first)
    return int(first) <= number <= highest


def _fields(
    owner: type[DataContainer], schema: Mapping[str, Json], version: int, rng: random.Random
) -> dict[str, object]:
    found = {}
    fields = schema["fields"]
    assert isinstance(fields, Sequence)
    for field in fields:
        assert isinstance(field, Mapping)
        if not is_in(field["versions"], version):
            continue
        name = field["name"]
        assert isinstance(name, str)
        lower = "".join("_" + each.lower() if each.isupper() else each for each in name)
        found[lower.lstrip("_")] = _value(owner, field, version, rng)
    return found


def _value(
    owner: type[DataContainer], field: Mapping[str, Json], version: int, rng: random.Random
) -> object:
    kind = field["type"]
    assert isinstance(kind, str)
    if is_in(field.get("nullableVersions"), version) and rng.random() < 0.3:
        return None
    if kind.startswith("[]"):
        element = {**field, "type": kind[2:], "nullableVersions": "none"}
        return [_value(owner, element, version, rng) for _ in range(rng.choice((0, 1, 3)))]
    if "fields" in field:
        inner = getattr(owner, kind)
        return inner(version=version, **_fields(inner, field, version, rng))
    if kind in INTEGERS:
        half = 1 << INTEGERS[kind] - 1
        return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))
    return {
        "uint16": rng.randrange(1 << 16),
        "bool": rng.random() < 0.5,
        "uuid": uuid.UUID(int=rng.randrange(1, 1 << 128)),
        "string": rng.choice(TEXTS),
        "bytes": rng.randbytes(rng.choice((0, 1, 300))),
        "float64": float(rng.randrange(100)),
        "bitfield": {1, 5},
    }[kind]
