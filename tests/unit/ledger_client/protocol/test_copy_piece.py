"""Batches in which a copy sends entries on, and their comparison with what the target returns
(rules 4.2, 4.3, 9.1).
"""

from dataclasses import replace

import pytest

from bookie.wire.batch import BatchView
from bookie.wire.codec import Entries
from bookie.wire.messages import Status
from ledger_client.digest import LedgerKeys
from ledger_client.protocol.copy import JOINED_BELOW_BYTES, JOINED_BELOW_ENTRIES, CopyPiece
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec
from tests.support.bookie.batches import make_batch, payload_of

LEDGER = LedgerId(7)
KEYS = LedgerKeys(LEDGER, 7, None, b"")
ALL = QuorumSpec(3, 3, 2, 1024)
STRIPED = QuorumSpec(3, 2, 2, 4)
BYTES_MAX = 1024 * 1024
LARGE = JOINED_BELOW_BYTES // 4
"""Size of entries of which four make a batch that is not joined with others."""


def payloads(first: int, last: int, size: int) -> list[bytes]:
    return [payload_of(LEDGER, number, size) for number in range(first, last + 1)]


def batch(first: int, last: int, size: int = LARGE, mac_key: bytes | None = None) -> BatchView:
    """Return a batch of the writer, which carries an old LAC."""
    entries = payloads(first, last, size)
    before = first * size
    return make_batch(LEDGER, first, entries, mac_key=mac_key, length_before=before)


def piece(
    *batches: BatchView,
    first: int,
    following: int,
    quorum: QuorumSpec = ALL,
    bytes_max: int = BYTES_MAX,
    keys: LedgerKeys = KEYS,
) -> CopyPiece:
    answer = VerifiedEntries(batches, EntryId(following), Status.OK, "", NO_ENTRY)
    return CopyPiece.of(answer, EntryId(first), first * LARGE, quorum, bytes_max, keys)


def shape(made: CopyPiece) -> list[tuple[int, int]]:
    """Return first entry and number of entries of each batch."""
    views = [BatchView(data) for _, data in made.batches]
    assert [first for first, _ in made.batches] == [
        batch_view.header.first_entry_id for batch_view in views
    ]
    for view in views:
        view.verify_crc()
        view.verify_digests(KEYS.seed)
    return [(view.header.first_entry_id, view.header.count) for view in views]


def test_a_complete_large_batch_is_sent_as_it_is() -> None:
    found = [batch(0, 3), batch(4, 7)]
    made = piece(*found, first=0, following=8)
    assert [bytes(data) for _, data in made.batches] == [bytes(view.data) for view in found]
    assert (made.entry_count, made.payload_bytes) == (8, 8 * LARGE)
    assert made.payloads_from(EntryId(6)) == payloads(6, 7, LARGE)


def test_many_tiny_entries_are_sent_as_they_are() -> None:
    found = batch(0, JOINED_BELOW_ENTRIES - 1, 1)
    made = piece(found, first=0, following=JOINED_BELOW_ENTRIES)
    assert bytes(made.batches[0][1]) == bytes(found.data)


def test_small_batches_are_joined_up_to_the_next_large_one() -> None:
    small = [make_batch(LEDGER, number, payloads(number, number, LARGE)) for number in range(3)]
    made = piece(*small, batch(3, 6), batch(7, 7), first=0, following=8)
    assert shape(made) == [(0, 3), (3, 4), (7, 1)]
    lengths = [BatchView(data).header.length_before for _, data in made.batches]
    assert lengths == [0, 3 * LARGE, 7 * LARGE]


@pytest.mark.parametrize(
    ("found", "quorum", "bytes_max", "cut"),
    [
        (BatchView(batch(0, 7).cut(EntryId(0), EntryId(3))), ALL, BYTES_MAX, [(0, 4)]),
        (batch(0, 7), ALL, BYTES_MAX, [(0, 4)]),
        (batch(0, 3), ALL, 2 * LARGE, [(0, 2), (2, 2)]),
        (batch(0, 3), replace(STRIPED, stripe_entries=2), BYTES_MAX, [(0, 2), (2, 2)]),
        (make_batch(8, 0, payloads(0, 3, LARGE)), ALL, BYTES_MAX, [(0, 4)]),
    ],
    ids=["slice", "longer than wanted", "too large", "two stripes", "digests of another ledger"],
)
def test_other_batches_are_made_again(
    found: BatchView, quorum: QuorumSpec, bytes_max: int, cut: list[tuple[int, int]]
) -> None:
    made = piece(found, first=0, following=4, quorum=quorum, bytes_max=bytes_max)
    assert shape(made) == cut
    assert all(bytes(data) != bytes(found.data) for _, data in made.batches)
    assert made.payloads_from(EntryId(0)) == payloads(0, 3, LARGE)


def test_one_entry_that_is_too_large_is_sent_as_it_is() -> None:
    found = batch(0, 0, JOINED_BELOW_BYTES)
    made = piece(found, first=0, following=1, bytes_max=10)
    assert bytes(made.batches[0][1]) == bytes(found.data)


# -- what the target returns -----------------------------------------------------------------------


def answer(*batches: BatchView) -> Entries:
    following = batches[-1].header.last_entry_id + 1 if batches else 0
    return Entries(Status.OK, NO_ENTRY, EntryId(following), batches)


def test_the_same_batches_are_the_same_up_to_their_end() -> None:
    made = piece(batch(0, 3), batch(4, 7), first=0, following=8)
    assert made.same_to(answer(batch(0, 3), batch(4, 7)), EntryId(0)) == 8
    assert made.same_to(answer(batch(0, 3)), EntryId(0)) == 4
    assert made.same_to(answer(batch(4, 7)), EntryId(4)) == 8
    assert made.same_to(answer(), EntryId(0)) == 0


def test_other_bytes_end_what_is_the_same() -> None:
    made = piece(batch(0, 3), batch(4, 7), first=0, following=8)
    other = make_batch(LEDGER, 4, payloads(3, 6, LARGE), length_before=4 * LARGE)
    assert made.same_to(answer(batch(0, 3), other), EntryId(0)) == 4
    assert made.same_to(answer(other), EntryId(4)) == 4
    assert made.same_to(answer(batch(4, 7)), EntryId(0)) == 0, "not from the first entry on"
    assert made.same_to(answer(batch(0, 7)), EntryId(0)) == 0, "other batches are taken apart"


def test_a_batch_with_a_mac_may_begin_before_the_piece() -> None:
    keys = replace(KEYS, lacks_mac_key=True)
    found = [batch(2, 5, mac_key=b"m" * 32), batch(6, 11, mac_key=b"m" * 32)]
    made = piece(*found, first=3, following=10, keys=keys)
    assert made.payload_bytes == 7 * LARGE
    assert made.same_to(answer(*found), EntryId(3)) >= made.next_entry_id
    assert made.same_to(answer(found[1]), EntryId(6)) >= made.next_entry_id


# -- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quorum", "bytes_max"),
    [(ALL, 4 * LARGE), (replace(STRIPED, stripe_entries=4), BYTES_MAX)],
    ids=["as large as allowed", "to the end of its stripe"],
)
def test_a_batch_that_just_fits_is_sent_as_it_is(quorum: QuorumSpec, bytes_max: int) -> None:
    """It carries an old LAC, which one that is made again does not."""
    found = batch(0, 3)
    made = piece(found, first=0, following=4, quorum=quorum, bytes_max=bytes_max)
    assert [bytes(data) for _, data in made.batches] == [bytes(found.data)]


def test_two_entries_that_are_too_large_together_are_divided() -> None:
    found = batch(0, 1, 2 * LARGE)
    made = piece(found, first=0, following=2, bytes_max=3 * LARGE)
    assert shape(made) == [(0, 1), (1, 1)]


def test_tiny_entries_below_the_number_are_joined() -> None:
    count = JOINED_BELOW_ENTRIES - 1
    made = piece(batch(0, count - 1, 1), batch(count, count, 1), first=0, following=count + 1)
    assert shape(made) == [(0, count + 1)]
    made = piece(batch(0, count, 1), batch(count + 1, count + 1, 1), first=0, following=count + 2)
    assert shape(made) == [(0, count + 1), (count + 1, 1)]
