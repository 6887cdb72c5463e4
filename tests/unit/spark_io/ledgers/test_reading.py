"""Reads of ranges with many missing entries, from a client that knows each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from bookie.wire.batch import BatchView, build_batch
from ledger_client import (
    EntryBatch,
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerInfo,
    LedgerRange,
    RangePart,
)
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.lost_entries import LostRange
from spark_io.errors import DataLostError
from spark_io.ledgers import reading
from spark_io.ledgers.options import ReadOptions
from spark_io.ranges import EntryRange
from tests.support.sample_ledgers import closed_ledger

ENTRIES = 4_001
"""More missing entries than Python allows nested calls."""


class HalfOfALedger:
    """Client of a closed ledger whose odd entries are gone."""

    def __init__(self, info: LedgerInfo) -> None:
        self._info = info

    def read_ranges(
        self, ranges: Sequence[LedgerRange], **_options: object
    ) -> Iterator[list[RangePart]]:
        (wanted,) = ranges
        at = EntryId(wanted.first)
        ledger_id = LedgerId(wanted.ledger_id)
        if at % 2 == 0:
            data = build_batch(ledger_id, at, EntryId(-1), 0, [b"x"], 0)
            yield [RangePart(0, self._info, EntryBatch(BatchView(data), at, at))]
            at = EntryId(at + 1)
        if at <= wanted.last:
            error = EntryNotFoundError("gone", ledger_id=ledger_id, entry_id=at)
            yield [RangePart(0, self._info, None, error)]


class ShortLedger:
    """Client of a closed ledger that ends before a planned range does."""

    def __init__(self, info: LedgerInfo, error: LedgerError) -> None:
        self._info = info
        self._error = error
        self._last = EntryId(int(info.last_entry_id or 0))

    def read_ranges(
        self, ranges: Sequence[LedgerRange], **_options: object
    ) -> Iterator[list[RangePart]]:
        (wanted,) = ranges
        ledger_id = LedgerId(wanted.ledger_id)
        if wanted.last > self._last:
            yield [RangePart(0, self._info, None, self._error, self._last)]
            return
        for at in map(EntryId, range(wanted.first, wanted.last + 1)):
            data = build_batch(ledger_id, at, EntryId(-1), 0, [b"x"], 0)
            yield [RangePart(0, self._info, EntryBatch(BatchView(data), at, at))]

    def ledger_infos(self, ledger_ids: Sequence[int]) -> Iterator[LedgerInfo]:
        return iter([self._info for _ in ledger_ids])


WHERE: Any = {"ledger_id": LedgerId(7), "entry_id": EntryId(11)}
ACCEPTED = LostRange(EntryId(8), EntryId(11), 1)


@pytest.mark.parametrize(
    "error", [EntryNotFoundError("", **WHERE), EntryLostError(lost=ACCEPTED, **WHERE)]
)
@pytest.mark.parametrize("include_value", ["true", "false"])
def test_a_range_beyond_the_end_of_a_closed_ledger_is_read_up_to_its_end(
    include_value: str,
    error: LedgerError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = replace(closed_ledger("abc"), last_entry_id=EntryId(7))
    client = cast("Any", ShortLedger(LedgerInfo.of(closed), error))
    monkeypatch.setattr(reading, "client_of", lambda _: client)
    given = {"metadata": "zk://h:1/q", "ledger": "7", "includeValue": include_value}
    ranges = [EntryRange(7, 5, 11)]
    with pytest.raises(DataLostError, match="entries 8 to 11: the ledger ends before entry 8"):
        list(reading.read_ranges(ranges, ReadOptions.of(given), None))
    lenient = ReadOptions.of({**given, "failOnDataLoss": "false"})
    batches = list(reading.read_ranges(ranges, lenient, None))
    assert [n for batch in batches for n in batch.column("entry_id").to_pylist()] == [5, 6, 7]
    assert "left out entries 8 to 11, 4 in all" in caplog.text
    behind = [EntryRange(7, 9, 11)]
    assert not list(reading.read_ranges(behind, lenient, None))


def test_any_number_of_missing_entries_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = replace(closed_ledger("abc"), last_entry_id=EntryId(ENTRIES - 1))
    client = cast("Any", HalfOfALedger(LedgerInfo.of(closed)))
    monkeypatch.setattr(reading, "client_of", lambda _: client)
    given = {"metadata": "zk://h:1/q", "ledger": "7", "failOnDataLoss": "false"}
    options = ReadOptions.of(given)
    ranges = [EntryRange(7, 0, ENTRIES - 1)]
    batches = list(reading.read_ranges(ranges, options, None))
    ids = [entry_id for batch in batches for entry_id in batch.column("entry_id").to_pylist()]
    assert ids == list(range(0, ENTRIES, 2))
