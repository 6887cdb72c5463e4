"""No encoder of a record returns bytes that its decoder refuses: one such record would stop all
that read it. Values of the right type for Python, such as True for a count, are tried too.
"""

import contextlib
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import msgpack
import pytest

import metadata
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import EntryId, UpdateToken
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.ledger_metadata import Fragment
from metadata.store.ephemeral import HeldNode, pack_held, unpack_held
from metadata.store.number_blocks import pack_block, unpack_block
from metadata.topics.in_sync import InSyncReport, pack_reports, unpack_reports
from metadata.topics.partition import (
    PartitionKey,
)
from metadata.topics.topic import (
    TOPIC_CODEC,
    PartitionLeadership,
    TopicId,
    TopicRecord,
    pack_topic,
)
from tests.support.metadata.samples import A, B, C, D, open_ledger
from tests.support.metadata.stored_codecs import given_to, sample_of, stored_codecs

TOKEN: Final = UpdateToken(bytes(16))
KEY: Final = PartitionKey(TopicId(bytes(16)), 0)
ODD: Final[Mapping[type, tuple[object, ...]]] = {
    bool: (1, None),
    int: (True, -1, -2, 2**31, 2**63 - 1, 2**63, 2**64, 1.0, None),
    float: (True, math.nan, math.inf, -1.0, 0.0),
    str: ("", "\ud800", " ", "x" * 70_000, b"x"),
    bytes: (b"", bytes(17), "x"),
    tuple: ((),),
    type(None): (0, -1, 2**63),
}
"""Values that may take the place of one of a type."""

TOPIC: Final = TopicRecord(
    "t", TopicId(bytes(16)), 5, (PartitionLeadership(1, 1, 3),), {"name": "value"}, token=TOKEN
)

REFUSALS: Final = (MetadataError, AttributeError, IndexError, AssertionError, TypeError, ValueError)

Record = tuple[object, ...]
"""Arguments of an encoder, without the name of the value."""


def named(function: Callable[..., object]) -> Callable[..., object]:
    """Return a codec without its first argument, the name of the value."""
    return partial(function, "a record")


RECORDS: Final[
    dict[Callable[..., object], tuple[Callable[..., object], Callable[..., object], Record]]
] = {
    encode_ledger_metadata: (
        encode_ledger_metadata,
        decode_ledger_metadata,
        (open_ledger(7, Fragment(EntryId(0), (A, B, C), (D,))),),
    ),
    pack_topic: (named(pack_topic), named(TOPIC_CODEC.unpack), (TOPIC,)),
    pack_reports: (
        lambda reports: pack_reports("a record", reports)[0],
        named(unpack_reports),
        ({KEY: InSyncReport(1, (1, 2), (1,))},),
    ),
    pack_held: (pack_held, named(unpack_held), (HeldNode(bytes(16), 5, b"content"),)),
    pack_block: (named(pack_block), partial(unpack_block, "a record", first=0), (5,)),
}
"""Each encoder, as it is called here, with its decoder and a record."""


def changes_of(value: object) -> Iterator[object]:
    """Yield the value with one of its parts replaced."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for part in changes_of(getattr(value, field.name)):
                with contextlib.suppress(*REFUSALS):  # no such record can be made
                    yield replace(value, **{field.name: part})
    elif isinstance(value, tuple) and value:
        yield from ODD[tuple]
        make = type(value)._make if hasattr(value, "_make") else tuple
        for index, item in enumerate(value):
            for part in changes_of(item):
                yield make((*value[:index], part, *value[index + 1 :]))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from ({**value, key: part} for part in changes_of(item))
    elif not isinstance(value, Enum):
        yield from ODD.get(type(value), ())


def encoders() -> Iterator[Callable[..., object]]:
    """Yield the public encoders of all records in `metadata`."""
    for module in pkgutil.walk_packages(metadata.__path__, "metadata."):
        for name, each in inspect.getmembers(importlib.import_module(module.name)):
            is_encoder = name.startswith("pack_") or name == "encode_ledger_metadata"
            if is_encoder and name != "pack_checked" and each.__module__ == module.name:
                yield each


def test_every_encoder_is_tried() -> None:
    assert {encoder.__qualname__ for encoder in encoders()} == {
        record.__qualname__ for record in RECORDS
    }


def test_only_the_size_of_a_record_is_taken_without_its_decoder() -> None:
    imported = re.compile(r"msgpack_fields import (?:\([^)]*|[^\n(]*)\bpack\b")
    root = Path(metadata.__path__[0])
    raw = [path.name for path in root.rglob("*.py") if imported.search(path.read_text())]
    assert raw == ["audit_trail.py"]


@pytest.mark.parametrize("encoder", RECORDS, ids=lambda each: each.__name__)
def test_what_an_encoder_returns_can_be_read(encoder: Callable[..., object]) -> None:
    encode, decode, record = RECORDS[encoder]
    assert decode(encode(*record)) is not None
    for changed in changes_of(record):
        assert isinstance(changed, tuple)
        try:
            value = encode(*changed)
        except REFUSALS:
            continue
        decode(value)  # it raises nothing


@pytest.mark.parametrize("name", stored_codecs())
def test_what_a_codec_stores_can_be_read(name: str) -> None:
    codec = stored_codecs()[name]
    record = sample_of(codec)
    value = codec.pack("a record", record)
    assert codec.unpack("a record", value, **given_to(codec, record)) == record
    given = given_to(codec, record)
    for changed in changes_of(record):
        try:
            value = codec.pack("a record", changed)
        except REFUSALS:
            continue
        codec.unpack("a record", value, **given)  # it raises nothing


@pytest.mark.parametrize("name", stored_codecs())
def test_a_field_more_or_less_is_refused(name: str) -> None:
    codec = stored_codecs()[name]
    record = sample_of(codec)
    fields = msgpack.unpackb(codec.pack("a record", record))
    for other in (fields[:-1], [*fields, None], [2, *fields[1:]], [0, *fields[1:]]):
        with pytest.raises(MetadataFormatError, match="a record"):
            codec.unpack("a record", msgpack.packb(other), **given_to(codec, record))
