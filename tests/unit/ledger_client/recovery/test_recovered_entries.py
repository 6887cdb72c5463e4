"""Entries that a recovery holds: runs, batches built of them, and what is dropped (rules 4.2 and
7.4).
"""

import pytest

from bookie.wire.batch import BatchView, build_batch
from ledger_client.digest import LedgerKeys
from ledger_client.protocol.recovery_events import FoundRun, Span
from ledger_client.recovery.recoverer import RecoveredEntries
from metadata.ids import NO_ENTRY, EntryId
from metadata.ledgers.ledger_metadata import DigestType
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.sample_ledgers import ledger_of

FAR = 2**40


def keys_of(digest: DigestType) -> LedgerKeys:
    return LedgerKeys.of(ledger_of((0, "abc"), digest=digest), b"secret")


KEYS = keys_of(DigestType.CRC32C)


def batch_of(first: int, count: int, keys: LedgerKeys = KEYS, before: int = 0) -> BatchView:
    texts = payloads(first, count)
    data = build_batch(
        LEDGER, EntryId(first), EntryId(first - 1), before, texts, keys.seed, keys.mac_key
    )
    return BatchView(data)


def span(first: int, count: int) -> Span:
    size = sum(map(len, payloads(first, count)))
    return Span(EntryId(first), count, 1_000, size)


def test_a_complete_batch_is_a_run_with_the_length_before_it() -> None:
    batch = batch_of(3, 4, before=length(3))
    lengths = tuple(map(len, payloads(3, 4)))
    assert RecoveredEntries(KEYS).hold(batch) == FoundRun(EntryId(3), lengths, length(3))


def test_a_slice_is_a_run_without_the_length_before_it() -> None:
    cut = BatchView(batch_of(3, 4, before=length(3)).cut(EntryId(4), EntryId(5)))
    lengths = tuple(map(len, payloads(4, 2)))
    assert RecoveredEntries(KEYS).hold(cut) == FoundRun(EntryId(4), lengths, None)


@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize(("first", "count"), [(0, 12), (0, 2), (2, 2), (2, 3), (3, 6), (9, 3)])
def test_a_span_becomes_one_batch_whatever_batches_its_entries_came_in(
    first: int, count: int, digest: DigestType
) -> None:
    keys = keys_of(digest)
    entries = RecoveredEntries(keys)
    for start, size in ((0, 5), (5, 1), (6, 6)):
        entries.hold(batch_of(start, size, keys))
    view = BatchView(entries.batch(span(first, count), EntryId(first - 1)))
    view.verify_crc()
    view.verify_digests(keys.seed)
    assert [bytes(payload_view) for payload_view in view.payload_views()] == payloads(first, count)
    assert (view.header.first_entry_id, view.header.lac) == (first, first - 1)
    assert (view.header.ledger_id, view.header.length_before) == (LEDGER, 1_000)


def test_a_batch_is_built_once() -> None:
    """Every bookie gets the same bytes, also after the LAC moved."""
    entries = RecoveredEntries(KEYS)
    entries.hold(batch_of(0, 4))
    built = entries.batch(span(0, 4), NO_ENTRY)
    assert entries.batch(span(0, 4), EntryId(2)) is built


def test_released_entries_are_dropped_and_the_others_stay() -> None:
    entries = RecoveredEntries(KEYS)
    entries.hold(batch_of(FAR, 8))
    entries.batch(span(FAR, 2), NO_ENTRY)
    kept = entries.batch(span(FAR + 5, 2), NO_ENTRY)
    entries.release(EntryId(FAR + 3))
    for dropped in (FAR, FAR + 1, FAR + 2):
        with pytest.raises(KeyError):
            entries.batch(span(dropped, 1), NO_ENTRY)
    assert entries.batch(span(FAR + 5, 2), NO_ENTRY) is kept
    assert BatchView(entries.batch(span(FAR + 3, 2), NO_ENTRY)).header.count == 2
    entries.release(EntryId(FAR + 4))
    with pytest.raises(KeyError):
        entries.batch(span(FAR + 3, 1), NO_ENTRY)


@pytest.mark.parametrize("second", [0, 3, 5])
def test_a_late_answer_with_released_entries_is_not_kept(second: int) -> None:
    """A later release with a lower id does not make them welcome again."""
    entries = RecoveredEntries(KEYS)
    entries.hold(batch_of(0, 8))
    entries.release(EntryId(5))
    entries.release(EntryId(second))
    entries.hold(batch_of(3, 5))
    with pytest.raises(KeyError):
        entries.batch(span(4, 1), NO_ENTRY)
    assert BatchView(entries.batch(span(5, 3), NO_ENTRY)).header.count == 3


def test_a_release_of_nothing_changes_nothing() -> None:
    entries = RecoveredEntries(KEYS)
    entries.release(EntryId(0))
    entries.hold(batch_of(0, 2))
    entries.release(EntryId(0))
    assert BatchView(entries.batch(span(0, 2), NO_ENTRY)).header.count == 2
