"""The export format returns the written entries, and detects every flipped bit and truncation."""

import io
from dataclasses import asdict, replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import DamagedFileError
from quire.operate.ledger_file import (
    EncryptionHeader,
    FileHeader,
    InSyncHeader,
    LedgerFileReader,
    LedgerFileWriter,
)

HEADER = FileHeader(
    ledger_id=7,
    state="closed",
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    digest="crc32c",
    custom_metadata={"app": "orders", "key": b"\xff"},
    in_sync=None,
    encryption=None,
)
BLOCKS = [[b"one", b"", b"three"], [b"\x00" * 300]]


def write(blocks: list[list[bytes]]) -> bytes:
    stream = io.BytesIO()
    writer = LedgerFileWriter(stream, HEADER)
    for block in blocks:
        writer.add(block)
    writer.end()
    return stream.getvalue()


def read(data: bytes) -> list[list[bytes]]:
    reader = LedgerFileReader(io.BytesIO(data))
    assert reader.header == HEADER
    return list(reader.blocks())


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=4))
def test_every_ledger_is_read_back(blocks: list[list[bytes]]) -> None:
    assert read(write(blocks)) == blocks


def test_every_cut_is_noticed() -> None:
    data = write(BLOCKS)
    for size in range(len(data)):
        with pytest.raises(DamagedFileError):
            read(data[:size])


def test_every_flipped_byte_is_noticed() -> None:
    data = write(BLOCKS)
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        with pytest.raises(DamagedFileError):
            read(bytes(damaged))


def test_a_missing_block_is_noticed() -> None:
    first, whole = write(BLOCKS[:1]), write(BLOCKS)
    trailer_bytes = 9 + 48
    block_of_second = len(whole) - len(first)
    without_first = whole[: len(first) - trailer_bytes - len(b"onethree") - 9 - 12 - 12]
    spliced = without_first + whole[-trailer_bytes - block_of_second :]
    with pytest.raises(
        DamagedFileError, match="entry 0 is expected next, but the file has entry 3"
    ):
        read(spliced)


def test_the_reader_counts_entries_and_bytes() -> None:
    reader = LedgerFileReader(io.BytesIO(write(BLOCKS)))
    list(reader.blocks())
    assert (reader.entry_count, reader.payload_bytes) == (4, 308)


def header_start() -> bytes:
    """Return the file's magic and its header."""
    stream = io.BytesIO()
    LedgerFileWriter(stream, HEADER)
    return stream.getvalue()


def header_of(header: FileHeader) -> bytes:
    stream = io.BytesIO()
    LedgerFileWriter(stream, header).end()
    return stream.getvalue()


def test_in_sync_mode_is_read_back() -> None:
    in_sync: InSyncHeader = {"min_in_sync": 2, "replica_lag_time_max_ms": 500}
    header = replace(HEADER, in_sync=in_sync)
    assert LedgerFileReader(io.BytesIO(header_of(header))).header == header


@pytest.mark.parametrize("name", ["in_sync", "encryption", "digest"])
def test_a_header_without_a_field_is_damage(name: str) -> None:
    fields = {key: value for key, value in asdict(HEADER).items() if key != name}
    stream = io.BytesIO()
    LedgerFileWriter(stream, HEADER)._block(b"H", msgpack.packb(fields))
    data = stream.getvalue()
    with pytest.raises(DamagedFileError, match=f"the header cannot be read: .*{name}"):
        LedgerFileReader(io.BytesIO(data[:8] + data[len(header_start()) :]))


@pytest.mark.parametrize("in_sync", [7, {}, {"min_in_sync": 1}, [1, 2]])
def test_malformed_in_sync_fields_are_damage(in_sync: object) -> None:
    header = replace(HEADER, in_sync=in_sync)  # type: ignore[arg-type]
    assert msgpack.packb(in_sync) in header_of(header)
    with pytest.raises(DamagedFileError, match="in_sync"):
        LedgerFileReader(io.BytesIO(header_of(header)))


ENCRYPTION: EncryptionHeader = {
    "cipher": "aes-256-gcm",
    "key_id": "2026-11",
    "key_token": bytes(16),
    "key_check": bytes(8),
}


def test_encryption_is_read_back() -> None:
    header = replace(HEADER, encryption=ENCRYPTION)
    assert LedgerFileReader(io.BytesIO(header_of(header))).header == header


@pytest.mark.parametrize(
    "encryption",
    [7, {}, {**ENCRYPTION, "key_id": 5}, {**ENCRYPTION, "key_token": "a"}, {"cipher": "a"}],
)
def test_malformed_fields_of_an_encryption_are_damage(encryption: object) -> None:
    header = replace(HEADER, encryption=encryption)  # type: ignore[arg-type]
    with pytest.raises(DamagedFileError, match="the header's encryption"):
        LedgerFileReader(io.BytesIO(header_of(header)))
