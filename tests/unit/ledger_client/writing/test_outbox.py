"""Bytes of unconfirmed batches: ids, lengths, and what a LAC releases (rules 4.1 and 4.2)."""

from bookie.wire.batch import BatchView
from ledger_client.digest import LedgerKeys
from ledger_client.writing.outbox import Outbox
from metadata.ids import NO_ENTRY, EntryId
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.sample_ledgers import open_ledger

SIZES = (3, 1, 4)


def filled() -> Outbox:
    """Return the outbox with batches of entries 0-2, 3 and 4-7."""
    outbox = Outbox(LedgerKeys.of(open_ledger("abc"), b"secret"))
    for number, count in enumerate(SIZES):
        texts = payloads(outbox.lap + 1, count)
        size = sum(map(len, texts))
        outbox.build(texts, size, EntryId(outbox.lap - 1 if number else NO_ENTRY), 10.0 + number)
    return outbox


def test_batches_continue_the_ids_and_the_length() -> None:
    outbox = filled()
    assert (outbox.lap, outbox.lac_sent, len(outbox)) == (7, 2, 3)
    for first, count, lac in ((0, 3, -1), (3, 1, 1), (4, 4, 2)):
        view = BatchView(outbox.data(EntryId(first)))
        view.verify_crc()
        assert view.header[:4] == (LEDGER, first, count, lac)
        assert view.header.length_before == length(first)
        assert [bytes(payload_view) for payload_view in view.payload_views()] == payloads(
            first, count
        )


def test_build_returns_the_first_id_and_an_empty_outbox_has_sent_nothing() -> None:
    outbox = Outbox(LedgerKeys.of(open_ledger("abc"), b"secret"))
    assert (outbox.lap, outbox.lac_sent, outbox.oldest_appended_at) == (-1, -1, None)
    assert outbox.build([b"x", b"y"], 2, NO_ENTRY, 0.0) == 0
    assert outbox.build([b"z"], 1, EntryId(0), 0.0) == 2


def test_the_last_entry_of_an_unknown_batch_is_its_first() -> None:
    outbox = filled()
    assert [outbox.last_entry_of(EntryId(n)) for n in (0, 3, 4, 1, 9)] == [2, 3, 7, 1, 9]


def test_a_lac_releases_only_batches_that_it_confirms_completely() -> None:
    outbox = filled()
    assert outbox.oldest_appended_at == 10.0
    assert outbox.release(EntryId(1)) == (0, 0)
    assert len(outbox) == 3
    assert outbox.release(EntryId(2)) == (length(3), 3)
    assert outbox.oldest_appended_at == 11.0
    assert outbox.release(EntryId(2)) == (0, 0)
    assert outbox.release(EntryId(6)) == (length(4) - length(3), 1)
    assert outbox.oldest_appended_at == 12.0
    assert outbox.release(EntryId(7)) == (length(8) - length(4), 4)
    assert len(outbox) == 0


def test_an_empty_outbox_has_no_oldest_batch() -> None:
    outbox = filled()
    outbox.release(EntryId(7))
    assert outbox.oldest_appended_at is None


def test_one_lac_releases_several_batches() -> None:
    outbox = filled()
    assert outbox.release(EntryId(3)) == (length(4), 4)


def test_clear_drops_everything() -> None:
    outbox = filled()
    outbox.release(EntryId(2))
    assert outbox.clear() == (length(8) - length(3), 5)
    assert (len(outbox), outbox.lap) == (0, 7)
    assert outbox.clear() == (0, 0)
