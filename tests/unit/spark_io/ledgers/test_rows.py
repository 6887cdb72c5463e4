"""Entries of several ledgers as Arrow batches."""

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa

from bookie.wire.batch import BATCH_ENTRIES_MAX, BatchView, build_batch
from ledger_client import EntryBatch, Fragment
from metadata.ids import BookieId, EntryId, LedgerId
from spark_io.ledgers import rows as module
from spark_io.ledgers.rows import Origin, RowBatches

WHOLE = (Fragment(EntryId(0), (BookieId("a"),)),)
CUT = (*WHOLE, Fragment(EntryId(3), (BookieId("b"),)))


def table(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def batch(ledger_id: int, first: int, *payloads: bytes) -> EntryBatch:
    data = build_batch(LedgerId(ledger_id), EntryId(first), EntryId(-1), 0, list(payloads), 0)
    return EntryBatch(BatchView(data), EntryId(first), EntryId(first + len(payloads) - 1))


def test_small_ledgers_share_a_batch() -> None:
    rows = RowBatches(bytes_wanted=1_000, include_value=True)
    made = [*rows.add(WHOLE, batch(7, 0, b"a", b"bc")), *rows.add(WHOLE, batch(9, 4, b"", b"d"))]
    assert made == []
    made = list(rows.finish())
    assert len(made) == 1
    assert table(made) == [(7, 0, 0, b"a"), (7, 1, 0, b"bc"), (9, 4, 0, b""), (9, 5, 0, b"d")]
    assert list(rows.finish()) == []


def test_rows_have_the_fragment_of_their_entry() -> None:
    rows = RowBatches(bytes_wanted=1_000, include_value=False)
    list(rows.add(CUT, batch(7, 1, b"x", b"x", b"x", b"x")))
    list(rows.add(CUT, batch(8, 3, b"x")))
    assert table(list(rows.finish())) == [(7, 1, 0), (7, 2, 0), (7, 3, 1), (7, 4, 1), (8, 3, 1)]


def test_ids_without_payloads_fill_batches_of_equal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_BATCH_MAX", 4)
    rows = RowBatches(bytes_wanted=1, include_value=False)
    made = [*rows.add_ids(CUT, 7, 1, 5), *rows.add_ids(WHOLE, 8, 0, 5), *rows.finish()]
    assert [each.num_rows for each in made] == [4, 4, 3]
    wanted = [(7, n, int(n >= 3)) for n in range(1, 6)] + [(8, n, 0) for n in range(6)]
    assert table(made) == wanted


def test_batches_end_at_their_size_in_bytes_or_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RowBatches(bytes_wanted=8, include_value=True)
    sizes = [made.num_rows for n in range(6) for made in rows.add(WHOLE, batch(n, 0, b"abc"))]
    assert sizes == [3, 3]
    monkeypatch.setattr(module, "ROWS_PER_BATCH_MAX", 3)
    rows = RowBatches(bytes_wanted=1_000, include_value=True)
    sizes = [made.num_rows for n in range(4) for made in rows.add(WHOLE, batch(n, 0, b"", b""))]
    assert sizes == [4, 4]


def test_rows_may_have_the_link_and_the_time_of_their_ledger() -> None:
    rows = RowBatches(bytes_wanted=1_000, include_value=False, include_link=True)
    list(rows.add(WHOLE, batch(7, 0, b"a", b"b"), Origin(3, 1_500)))
    list(rows.add_ids(WHOLE, 8, 4, 4, Origin(None, 2_000)))
    (made,) = rows.finish()
    assert made.schema.names == ["ledger_id", "entry_id", "fragment", "link", "ledger_time"]
    times = [1_500_000, 1_500_000, 2_000_000]
    assert made.column(3).to_pylist() == [3, 3, None]
    assert made.column(4).cast(pa.int64()).to_pylist() == times


def test_a_large_received_batch_is_not_copied() -> None:
    rows = RowBatches(bytes_wanted=8, include_value=True)
    small, large = batch(7, 0, b"a", b"bc"), batch(7, 2, b"", b"defg")
    made = [*rows.add(WHOLE, small), *rows.add(WHOLE, large), *rows.finish()]
    assert table(made) == [(7, 0, 0, b"a"), (7, 1, 0, b"bc"), (7, 2, 0, b""), (7, 3, 0, b"defg")]
    assert made[1].column(3).buffers()[2].address == pa.py_buffer(large.payload).address


def test_part_of_a_received_batch() -> None:
    rows = RowBatches(bytes_wanted=1_000, include_value=True)
    part = batch(7, 0, b"a", b"bc", b"", b"d").clipped(EntryId(1), EntryId(2))
    assert part is not None
    list(rows.add(WHOLE, part))
    assert table(list(rows.finish())) == [(7, 1, 0, b"bc"), (7, 2, 0, b"")]


def test_a_batch_of_the_largest_number_of_rows() -> None:
    rows = RowBatches(bytes_wanted=1_000_000, include_value=False)
    assert list(rows.add_ids(WHOLE, 7, 0, module.ROWS_PER_BATCH_MAX - 2)) == []
    (made,) = rows.add(WHOLE, batch(8, 0, *[b""] * BATCH_ENTRIES_MAX))
    ids = made.column(1)
    assert made.num_rows == module.ROWS_PER_BATCH_MAX - 1 + BATCH_ENTRIES_MAX
    assert ids[module.ROWS_PER_BATCH_MAX - 2].as_py() == module.ROWS_PER_BATCH_MAX - 2
    assert ids[-1].as_py() == BATCH_ENTRIES_MAX - 1
