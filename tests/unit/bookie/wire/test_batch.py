"""Batches round-trip, damage is found, and a cut keeps the writer's digests."""

import hmac
import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.batch import (
    BATCH_ENTRIES_MAX,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    FLAG_KEYED,
    FLAG_SLICE,
    LENGTH_MAX,
    BatchView,
    build_batch,
    entry_digests,
    parse_header,
)
from bookie.wire.errors import BatchError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, EntryId, LedgerId

LEDGER = LedgerId(0x1122334455667788)
SEED = 0xFFFFFFFE  # so that seed + entry id passes 2^32
KEY = bytes(range(32))

payload_lists = st.lists(st.binary(max_size=60), min_size=1, max_size=20)


def _build(payloads: list[bytes], first: int = 10, key: bytes | None = None) -> bytearray:
    return build_batch(LEDGER, EntryId(first), EntryId(first - 1), 99, payloads, SEED, key)


def test_golden_batch() -> None:
    batch = build_batch(LEDGER, EntryId(5), NO_ENTRY, 1000, [b"ab", b"", b"cde"], 7)
    head = (
        "4251" "01" "00" "03000000" "8877665544332211" "0500000000000000"
        "ffffffffffffffff" "e803000000000000" "05000000"
    )  # fmt: skip
    lengths = "02000000" "00000000" "03000000"  # fmt: skip
    digests = struct.pack("<III", crc32c(b"ab", 12), crc32c(b"", 13), crc32c(b"cde", 14)).hex()
    rest = bytes.fromhex(lengths + digests) + b"abcde"
    crc = struct.pack("<I", crc32c(bytes.fromhex(head) + rest))
    assert bytes(batch) == bytes.fromhex(head) + crc + rest
    assert bytes(batch[44:48]).hex() == GOLDEN_CRC


GOLDEN_CRC = "0c35aa2a"


def test_golden_keyed_batch() -> None:
    batch = build_batch(LEDGER, EntryId(5), NO_ENTRY, 1000, [b"ab"], 7, KEY)
    assert batch[3] == FLAG_KEYED
    mac = hmac.digest(KEY, bytes(batch[:44]) + bytes(batch[80:]), "sha256")
    assert bytes(batch[48:80]) == mac
    assert mac.hex()[:16] == GOLDEN_MAC


GOLDEN_MAC = "83d5e48bdb730d54"


@given(payload_lists, st.integers(0, 2**40), st.booleans())
def test_round_trip(payloads: list[bytes], first: int, keyed: bool) -> None:
    data = _build(payloads, first, KEY if keyed else None)
    view = BatchView(bytes(data) + b"what follows")
    view.verify_crc()
    view.verify_digests(SEED)
    if keyed:
        view.verify_mac(KEY)
    header = view.header
    assert (header.ledger_id, header.first_entry_id, header.count) == (LEDGER, first, len(payloads))
    assert (header.lac, header.length_before) == (first - 1, 99)
    assert header.size == len(data) == len(view.data)
    assert [bytes(payload) for payload in view.payload_views()] == payloads
    assert [view.entry(index) for index in range(len(payloads))] == payloads
    assert view.offsets()[-1] == header.payload_bytes == sum(map(len, payloads))


def _naive_digests(payloads: list[bytes], first: int, seed: int) -> list[int]:
    return [crc32c(p, (seed + first + i) % 2**32) for i, p in enumerate(payloads)]


@given(payload_lists, st.integers(0, ENTRY_ID_MAX - 20), st.integers(0, 2**32 - 1))
def test_digests_agree_with_the_naive_twin(payloads: list[bytes], first: int, seed: int) -> None:
    assert entry_digests(payloads, EntryId(first), seed) == _naive_digests(payloads, first, seed)


@given(payload_lists, st.booleans(), st.data())
def test_any_flipped_bit_is_found(payloads: list[bytes], keyed: bool, data: st.DataObject) -> None:
    batch = _build(payloads, key=KEY if keyed else None)
    position = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[position // 8] ^= 1 << position % 8
    with pytest.raises(BatchError):
        BatchView(batch).verify_crc()


@given(payload_lists, st.data())
def test_mac_finds_damage_with_a_valid_crc(payloads: list[bytes], data: st.DataObject) -> None:
    batch = _build(payloads, key=KEY)
    places = [*range(44), *range(BATCH_HEADER_BYTES, len(batch))]
    batch[data.draw(st.sampled_from(places))] ^= 0x10
    with pytest.raises(BatchError):
        BatchView(batch).verify_mac(KEY)


def test_another_password_fails_the_mac() -> None:
    with pytest.raises(BatchError, match="password"):
        BatchView(_build([b"x"], key=KEY)).verify_mac(bytes(32))
    with pytest.raises(BatchError, match="no MAC"):
        BatchView(_build([b"x"])).verify_mac(KEY)


@given(payload_lists, st.data())
def test_truncated_batches_are_refused(payloads: list[bytes], data: st.DataObject) -> None:
    batch = _build(payloads)
    length = data.draw(st.integers(0, len(batch) - 1))
    with pytest.raises(BatchError):
        BatchView(memoryview(batch)[:length])


@given(payload_lists, st.booleans(), st.data())
def test_cuts_keep_entries_and_digests(
    payloads: list[bytes], keyed: bool, data: st.DataObject
) -> None:
    view = BatchView(_build(payloads, key=KEY if keyed else None))
    skip = data.draw(st.integers(0, len(payloads) - 1))
    stop = data.draw(st.integers(skip, len(payloads) - 1))
    cut = BatchView(view.cut(EntryId(10 + skip), EntryId(10 + stop)))
    cut.verify_crc()
    cut.verify_digests(SEED)
    whole = keyed or (skip == 0 and stop == len(payloads) - 1)
    if whole:
        assert cut.data == view.data
        return
    assert cut.header.is_slice
    assert cut.header.first_entry_id == 10 + skip
    assert [bytes(p) for p in cut.payload_views()] == payloads[skip : stop + 1]
    assert cut.digests == view.digests[skip : stop + 1]
    again = cut.cut(cut.header.last_entry_id, cut.header.last_entry_id)
    assert [bytes(p) for p in BatchView(again).payload_views()] == [payloads[stop]]


def _with_header(**changes: int) -> bytes:
    values = {
        "magic": BATCH_MAGIC,
        "version": 1,
        "flags": 0,
        "count": 1,
        "ledger_id": 7,
        "first": 3,
        "lac": 2,
        "length_before": 0,
        "payload_bytes": 0,
    } | changes
    return struct.pack("<HBBIQQqQI", *values.values()) + bytes(400)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"magic": 0}, "not a batch"),
        ({"version": 0}, "not a batch of version"),
        ({"version": 2}, "not a batch of version"),
        ({"flags": 4}, "unknown batch flags"),
        ({"flags": FLAG_KEYED | FLAG_SLICE}, "unknown batch flags"),
        ({"count": 0}, "a batch holds"),
        ({"count": BATCH_ENTRIES_MAX + 1}, "a batch holds"),
        ({"count": 2**32 - 1}, "a batch holds"),
        ({"ledger_id": LEDGER_ID_MAX + 1}, "out of range"),
        ({"ledger_id": 2**64 - 1}, "out of range"),
        ({"first": ENTRY_ID_MAX + 1}, "out of range"),
        ({"first": ENTRY_ID_MAX, "count": 2}, "out of range"),
        ({"first": 2**64 - 1}, "out of range"),
        ({"lac": -2}, "LAC"),
        ({"lac": 4}, "LAC"),
        ({"lac": 2**63 - 1}, "LAC"),
        ({"length_before": LENGTH_MAX, "payload_bytes": 1}, "out of range"),
        ({"length_before": 2**64 - 1}, "out of range"),
    ],
)
def test_bad_headers_are_named(changes: dict[str, int], why: str) -> None:
    with pytest.raises(BatchError, match=why):
        parse_header(_with_header(**changes))


@pytest.mark.parametrize(
    "changes", [{"count": 4096}, {"payload_bytes": 2**32 - 1}, {"payload_bytes": 500}]
)
def test_counts_beyond_what_is_left(changes: dict[str, int]) -> None:
    with pytest.raises(BatchError, match="bytes of a batch"):
        BatchView(_with_header(**changes))


def test_lengths_must_add_up_even_under_a_valid_crc() -> None:
    batch = _build([b"abc", b"de"])
    struct.pack_into("<I", batch, BATCH_HEADER_BYTES, 4)
    crc = crc32c(batch[BATCH_HEADER_BYTES:], crc32c(batch[:44]))
    struct.pack_into("<I", batch, 44, crc)
    with pytest.raises(BatchError, match="add up"):
        BatchView(batch).verify_crc()


@given(st.binary(max_size=300))
def test_garbage_raises_nothing_else(garbage: bytes) -> None:
    for data in garbage, b"\x42\x51\x01\x00" + garbage:
        with suppress(BatchError):
            BatchView(data).verify_crc()
