"""Fuzz targets for the values in the metadata service, and for files of `quire ledger export`.

Leaves the bookie's own files to `tests.fuzz.disk_targets`.
"""

import io
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar

from metadata.errors import MetadataFormatError
from metadata.ids import NO_ENTRY, EntryId
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.records import Codec
from quire.errors import DamagedFileError
from quire.operate.ledger_file import FileHeader, LedgerFileReader, LedgerFileWriter
from tests.fuzz.findings import Check, require
from tests.fuzz.sealing import seal_export
from tests.fuzz.targets import KIB, ParserTarget
from tests.fuzz.wire_targets import HOSTILE_MSGPACK
from tests.support.metadata.samples import A, B, C, D, open_ledger
from tests.support.metadata.stored_codecs import given_to, sample_of, stored_codecs

Value = TypeVar("Value")
EXPORT_HEADER: Final = FileHeader(
    *(7, "closed", 3, 3, 2, "crc32c"), {"app": "orders", "key": b"\xff"}, None, None
)


def codec_check(encode: Callable[[Value], bytes], decode: Callable[[bytes], Value]) -> Check:
    """Return the check that a stored value is refused, or stays the same when encoded and decoded
    again.
    """

    def check(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
        try:
            found = decode(data)
        except MetadataFormatError:
            return False
        # By its text: a setting of a later release may be NaN, which equals nothing.
        require(repr(decode(encode(found))) == repr(found), "a value is the same stored again")
        return True

    return check


def sample_ledgers() -> tuple[bytes, ...]:
    """Return ledgers' metadata."""
    recovering = open_ledger(
        9,
        Fragment(EntryId(0), (A, B, C)),
        Fragment(EntryId(12), (A, B, D), incoming=(C,)),
        Fragment(EntryId(2**40), (D, B, A)),
    )
    closed: LedgerMetadata = open_ledger(11)
    closed = _closed(closed)
    owned = replace(open_ledger(), owner="User:CN=alice,O=example")
    return tuple(
        encode_ledger_metadata(metadata) for metadata in (open_ledger(), recovering, closed, owned)
    )


def _closed(ledger: LedgerMetadata) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id=ledger.ledger_id,
        state=LedgerState.CLOSED,
        quorum=ledger.quorum,
        fragments=ledger.fragments,
        digest=ledger.digest,
        created_ms=ledger.created_ms,
        creation_token=ledger.creation_token,
        update_token=ledger.update_token,
        writer=ledger.writer,
        last_entry_id=NO_ENTRY,
        length=0,
        custom=ledger.custom,
    )


def sample_exports() -> tuple[bytes, ...]:
    """Return exported ledgers."""
    rng = Random(3)
    made = []
    for blocks in ([[b"one", b"", b"three"], [bytes(300)]], [], [[rng.randbytes(9)] * 40]):
        stream = io.BytesIO()
        writer = LedgerFileWriter(stream, EXPORT_HEADER)
        for block in blocks:
            writer.add(block)
        writer.end()
        made.append(stream.getvalue())
    return tuple(made)


EXPORTS: Final = sample_exports()


def check_export(data: bytes, _origin: bytes, is_sealed: bool) -> bool:
    """Read a file as `quire ledger import` does, and write the contents again."""
    try:
        reader = LedgerFileReader(io.BytesIO(data))
        blocks = list(reader.blocks())
    except DamagedFileError:
        return False
    is_genuine = any(data.startswith(export) for export in EXPORTS)
    require(is_sealed or is_genuine, "a damaged file was taken for a whole one")
    stream = io.BytesIO()
    writer = LedgerFileWriter(stream, reader.header)
    for block in filter(None, blocks):
        writer.add(block)
    writer.end()
    again = LedgerFileReader(io.BytesIO(stream.getvalue()))
    require(again.header == reader.header, "the header is the same written and read again")
    require(list(again.blocks()) == [each for each in blocks if each], "and so are the entries")
    return True


def stored_targets() -> list[ParserTarget]:
    """Return the targets of this module."""
    return [
        ParserTarget(
            "ledger_metadata",
            codec_check(encode_ledger_metadata, decode_ledger_metadata),
            sample_ledgers(),
            hostile=HOSTILE_MSGPACK,
            weight=2,
        ),
        *_record_targets(),
        ParserTarget(
            "export_file",
            check_export,
            EXPORTS,
            hostile=(_nested_header(),),
            seal=seal_export,
            fields=((9, 4), (13, 4), (8, 1), (17, 4)),
            weight=0.7,
            allocation_base_bytes=1024 * KIB,
        ),
    ]


def _record_targets() -> list[ParserTarget]:
    """Return a target for each record that is stored by the types of its fields."""
    return [_record_target(name, codec) for name, codec in stored_codecs().items()]


def _record_target(name: str, codec: Codec[Any]) -> ParserTarget:
    sample = sample_of(codec)
    given = given_to(codec, sample)
    seed = codec.pack("path", sample)
    check = codec_check(
        lambda record: codec.pack("path", record),
        lambda value: codec.unpack("path", value, **given),
    )
    target = name.removesuffix("_CODEC").lower()
    return ParserTarget(target, check, (seed,), hostile=HOSTILE_MSGPACK, weight=0.3)


def _nested_header() -> bytes:
    body = HOSTILE_MSGPACK[1]
    data = bytearray(b"QUIRELX1" + b"H" + len(body).to_bytes(4, "little") + bytes(4) + body)
    seal_export(data, Random(1))
    return bytes(data)
