"""Stored form of ledger metadata: round trips, fields, and refusal of everything else."""

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError, ValueTooLargeError
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, Fragment, LedgerMetadata
from metadata.ledgers.lost_entries import LOST_RANGES_MAX
from metadata.ledgers.payload_encryption import PayloadEncryption
from metadata.store.interface import VALUE_BYTES_MAX
from tests.support.metadata.samples import A, B, C, D, E, open_ledger, token
from tests.support.metadata.strategies import ledger_metadata


def repaired_ledger() -> LedgerMetadata:
    return (
        open_ledger(2**62 + 5)
        .with_ensemble_change(EntryId(100), (A, D, C), token(3))
        .with_fragment(0, Fragment(EntryId(0), (A, B, C), (E,)), token(4))
        .with_closed(EntryId(199), 12_345, token(5))
    )


@given(ledger_metadata())
def test_round_trip(metadata: LedgerMetadata) -> None:
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


def test_the_fields_in_their_order() -> None:
    stored = replace(repaired_ledger(), encryption=ENCRYPTION, owner="User:CN=alice,O=example")
    fields = msgpack.unpackb(encode_ledger_metadata(stored.with_lost(((3, 5),), 7, token(6))))
    assert fields == [
        *(1, 2**62 + 5, "closed", ["quorum", 3, 3, 2, 1024, 1, 30_000]),
        ["bookie-a", "bookie-b", "bookie-c", "bookie-e", "bookie-d"],
        [[0, [0, 1, 2], [3]], [100, [0, 4, 2]]],
        *("crc32c", stored.created_ms, stored.creation_token, token(6), stored.writer),
        *(199, 12_345, {"app": "orders", "key": b"\x00\xff"}, [], [[3, 5, 7]]),
        ["aes-256-gcm", "2026-11", token(9), b"12345678"],
        "User:CN=alice,O=example",
    ]


def test_bookie_ids_are_stored_once() -> None:
    fragments = [Fragment(EntryId(i), (A, B, C)) for i in range(1000)]
    assert encode_ledger_metadata(open_ledger(1, *fragments)).count(A.encode()) == 1


def test_the_maximum_number_of_fragments_fits() -> None:
    ids = [BookieId(f"bookie-{i:04}-0123456789abcdef") for i in range(1000)]
    fragments = [
        Fragment(EntryId(i * 10**9), (ids[i % 1000], ids[(i + 1) % 1000], ids[(i + 2) % 1000]))
        for i in range(FRAGMENTS_MAX)
    ]
    assert len(encode_ledger_metadata(open_ledger(1, *fragments))) < VALUE_BYTES_MAX


def test_refuses_a_value_over_the_limit() -> None:
    fragments = [Fragment(EntryId(i * 10**12), (A, B, C, D, E)) for i in range(60_000)]
    with pytest.raises(ValueTooLargeError) as caught:
        encode_ledger_metadata(open_ledger(1, *fragments))
    assert caught.value.limit == VALUE_BYTES_MAX


def test_refuses_a_newer_format() -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(repaired_ledger()))
    fields[0] = 2
    with pytest.raises(MetadataFormatError, match="version 2"):
        decode_ledger_metadata(msgpack.packb(fields), "ledger 7")


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 0),
        (0, True),
        (0, "1"),
        (1, -1),
        (1, 2**63),
        (2, "shut"),
        (3, ["quorum", 1, 2, 3, 1, 1, 1]),
        (3, []),
        (4, ["Not An Id"]),
        (4, ["bookie-a", "bookie-a", "x", "y", "z"]),
        (5, []),
        (5, [[1, [0]]]),
        (5, [[0, [0, 0]]]),
        (5, [[0, [99]]]),
        (5, [[0, []]]),
        (5, [[0, [0]], [0, [1]]]),
        (6, "md5"),
        (8, b"short"),
        (9, "text"),
        (11, None),
        (11, -2),
        (12, None),
        (13, {"a": 1}),
        (13, []),
    ],
)
def test_refuses_a_field_out_of_range(index: int, value: object) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(repaired_ledger()))
    fields[index] = value
    with pytest.raises(MetadataFormatError):
        decode_ledger_metadata(msgpack.packb(fields))


@pytest.mark.parametrize(
    ("index", "value", "why"),
    [
        (4, ["bookie-a", "bookie-b", "bookie-c", "bookie-e", "Not An Id"], "is not a bookie id"),
        (4, ["bookie-a", "bookie-b", "bookie-c", "bookie-e", "bookie-a"], "repeats one"),
        (5, [[0, [0, 1, 5]]], "5"),
        (5, [[0, [0, 1, -1]]], "-1"),
        (5, [[0, [0, 1, 2], [3], 0]], "a fragment has 2 or 3 fields, found 4"),
        (5, [[0]], "a fragment has 2 or 3 fields, found 1"),
        (5, [[0, [0, 1, 2], [5]]], "5"),
    ],
)
def test_says_which_field_is_out_of_range(index: int, value: object, why: str) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(repaired_ledger()))
    assert len(fields[4]) == 5
    fields[index] = value
    with pytest.raises(MetadataFormatError, match=why):
        decode_ledger_metadata(msgpack.packb(fields))


def given_up_ledger(index: int = 1) -> LedgerMetadata:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(3))
    return ledger.with_recovery_begun(token(4)).with_given_up(index, 50, token(5))


@pytest.mark.parametrize("index", [0, 1])
def test_fragments_that_were_given_up_are_kept(index: int) -> None:
    ledger = given_up_ledger(index)
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger


@pytest.mark.parametrize("given_up", [[[9, [0, 1, 3]]], [[11, [0, 1, 3]]]])
def test_what_was_given_up_begins_at_the_end_of_the_ledger(given_up: object) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(given_up_ledger()))
    fields[14] = given_up
    with pytest.raises(MetadataFormatError, match="given up begin after the end"):
        decode_ledger_metadata(msgpack.packb(fields))


def test_only_a_closed_ledger_has_something_given_up() -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(open_ledger()))
    fields[14] = [[1, [0, 1, 2]]]
    with pytest.raises(MetadataFormatError, match="of a closed ledger"):
        decode_ledger_metadata(msgpack.packb(fields))


def test_refuses_fields_that_it_does_not_know() -> None:
    fields = [*msgpack.unpackb(encode_ledger_metadata(lost_ledger())), []]
    with pytest.raises(MetadataFormatError, match="19 fields instead of 18"):
        decode_ledger_metadata(msgpack.packb(fields))


def lost_ledger(*found: tuple[int, int]) -> LedgerMetadata:
    return repaired_ledger().with_lost(found or ((3, 5), (9, 9)), 1_000, token(6))


def test_lost_entries_are_kept() -> None:
    ledger = lost_ledger((0, 4), (200, ENTRY_ID_MAX))
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger


def test_both_lost_and_given_up_are_kept() -> None:
    ledger = given_up_ledger().with_lost(((0, 9),), 7, token(6))
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ([[3, 5]], "has 3 fields, found 2"),
        ([[5, 3, 7]], "ends before it begins"),
        ([[3, 5, 7], [5, 6, 8]], "not ascending"),
        ([[3, 5, 7], [6, 8, 7]], "or not joined"),
        ([[199, 200, 7]], "beyond the ledger's last entry"),
        ([[201, ENTRY_ID_MAX, 7]], "beyond the ledger's last entry"),
        ([[i, i, 7] for i in range(0, 2 * LOST_RANGES_MAX + 2, 2)], "5001 ranges"),
    ],
)
def test_refuses_lost_entries_that_are_not_valid(lost: object, why: str) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(lost_ledger()))
    fields[15] = lost
    with pytest.raises(MetadataFormatError, match=why):
        decode_ledger_metadata(msgpack.packb(fields))


ENCRYPTION = PayloadEncryption(key_id="2026-11", key_token=token(9), key_check=b"12345678")


def encrypted_ledger() -> LedgerMetadata:
    return replace(open_ledger(), encryption=ENCRYPTION)


def test_encryption_is_kept_with_lost_and_given_up_entries() -> None:
    ledger = replace(given_up_ledger(), encryption=ENCRYPTION).with_lost(((0, 9),), 7, token(6))
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger


@pytest.mark.parametrize(
    ("encryption", "why"),
    [
        (["rot13", "a", bytes(16), bytes(8)], "rot13"),
        (["aes-256-gcm", "", bytes(16), bytes(8)], "not a key id"),
        (["aes-256-gcm", "a b", bytes(16), bytes(8)], "not a key id"),
        (["aes-256-gcm", "\u00fc", bytes(16), bytes(8)], "not a key id"),
        (["aes-256-gcm", "a" * 129, bytes(16), bytes(8)], "not a key id"),
        (["aes-256-gcm", "a", bytes(15), bytes(8)], "has 16 bytes"),
        (["aes-256-gcm", "a", bytes(16), bytes(9)], "has 8 bytes"),
        (["aes-256-gcm", "a", bytes(16)], "has 4 fields, found 3"),
        ([], "has 4 fields, found 0"),
        ("aes-256-gcm", "an array is expected"),
    ],
)
def test_refuses_an_encryption_that_is_not_valid(encryption: object, why: str) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(encrypted_ledger()))
    fields[16] = encryption
    with pytest.raises(MetadataFormatError, match=why):
        decode_ledger_metadata(msgpack.packb(fields))


def owned_ledger() -> LedgerMetadata:
    return replace(open_ledger(), owner="User:CN=alice,O=example")


def test_an_owner_is_kept_with_encryption_and_with_lost_and_given_up_entries() -> None:
    ledger = replace(given_up_ledger(), owner="User:bob").with_lost(((0, 9),), 7, token(6))
    for metadata in (ledger, replace(ledger, encryption=ENCRYPTION)):
        assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ("alice", "not a principal"),
        ("User:" + "a" * 512, "not a principal"),
        ("User:a\nb", "not a principal"),
        (None, "text is expected"),
    ],
)
def test_refuses_an_owner_that_is_not_valid(owner: object, why: str) -> None:
    fields = msgpack.unpackb(encode_ledger_metadata(owned_ledger()))
    fields[17] = owner
    with pytest.raises(MetadataFormatError, match=why):
        decode_ledger_metadata(msgpack.packb(fields))


def test_the_maximum_number_of_lost_ranges_fits() -> None:
    ledger = replace(repaired_ledger(), last_entry_id=EntryId(10**13))
    found = [(i * 10**9, i * 10**9 + 10**8) for i in range(LOST_RANGES_MAX)]
    encoded = encode_ledger_metadata(ledger.with_lost(found, 1_700_000_000_000, token(6)))
    assert len(encoded) < VALUE_BYTES_MAX // 6


def test_the_largest_value_is_stored() -> None:
    small = len(encode_ledger_metadata(replace(open_ledger(), custom={"a": b"x" * 2**16})))
    room = VALUE_BYTES_MAX - small
    largest = replace(open_ledger(), custom={"a": b"x" * (2**16 + room)})
    assert len(encode_ledger_metadata(largest)) == VALUE_BYTES_MAX
    with pytest.raises(ValueTooLargeError):
        encode_ledger_metadata(replace(largest, custom={"a": b"x" * (2**16 + room + 1)}))


@given(st.binary(max_size=200))
def test_garbage_is_a_format_error(garbage: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        decode_ledger_metadata(garbage)


@given(st.data())
def test_a_damaged_value_is_metadata_or_a_format_error(data: st.DataObject) -> None:
    value = bytearray(encode_ledger_metadata(repaired_ledger()))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)))
    for damaged in (bytes(value), bytes(value[:cut])):
        try:
            decode_ledger_metadata(damaged)
        except MetadataFormatError:
            continue


def test_text_without_utf8_form_is_refused() -> None:
    metadata = open_ledger()
    broken = replace(metadata, custom={"a": "\ud800"})
    with pytest.raises(MetadataFormatError):
        encode_ledger_metadata(broken)


def test_an_ensemble_of_another_size_than_the_quorum_says_is_refused() -> None:
    good = open_ledger()
    for ensemble in ((A, B), (A, B, C, D)):
        assert len(ensemble) != good.quorum.ensemble_size
        bad = replace(good, fragments=(Fragment(EntryId(0), ensemble),))
        with pytest.raises(MetadataFormatError, match="the quorum needs"):
            decode_ledger_metadata(encode_ledger_metadata(bad))


def test_a_loss_may_have_been_accepted_at_any_time() -> None:
    ledger = repaired_ledger().with_lost(((3, 5),), 0, token(6))
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger


def test_entries_after_the_first_one_may_be_given_up() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(1), (A, B, D), token(3))
    ledger = ledger.with_recovery_begun(token(4)).with_given_up(1, 50, token(5))
    assert ledger.last_entry_id == 0
    assert decode_ledger_metadata(encode_ledger_metadata(ledger)) == ledger
