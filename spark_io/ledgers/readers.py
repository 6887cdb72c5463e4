"""Readers of the `ledger` source, of batch queries and of streams.

Leaves finding the ledgers to `selecting`, following them to `following`, and reading to `reading`.

Invariants: a batch query sees each ledger as it was when the query was planned.

Spark's filters are not pushed down, because Spark 4.3 applies the filters of one query to the next
query of the same DataFrame too (decision 0011).

Source: Spark design, "Reading".
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ledger_client.sync import LedgerClient
from spark_io.ledgers.following import OpenLedgers, check_stream, follow
from spark_io.ledgers.options import Bounds, ReadOptions
from spark_io.ledgers.positions import check_bounds, ends_given, starts_and_ends
from spark_io.ledgers.reading import read_ranges
from spark_io.ledgers.selecting import (
    SelectedLedgers,
    find_ledgers,
    infos_of,
    recover,
    warn_of_hidden,
)
from spark_io.offsets import FollowedSource
from spark_io.ranges import EntryRange, PackedRanges
from spark_io.readers import RangePartition, RangeReader, StreamReader
from spark_io.workers import client_of, sentence_first

if TYPE_CHECKING:
    from spark_io.payloads import PayloadColumns


def _of_fragments(
    client: LedgerClient, ranges: list[EntryRange], bounds: Bounds
) -> Iterator[EntryRange]:
    """Return the parts of ranges that are in the wanted fragments, which ledgers' metadata has. A
    deleted ledger is left to the task that reads it.
    """
    infos = infos_of(client, [range_.ledger_id for range_ in ranges])
    fragments = {int(info.id): info.fragments for info in infos if info is not None}
    return bounds.of_fragments(ranges, fragments)


class _LedgerReader(RangeReader[ReadOptions]):
    """What tasks do with ranges of ledgers. With `columns` the rows are parsed payloads."""

    def __init__(self, options: ReadOptions, columns: "PayloadColumns | None" = None) -> None:
        super().__init__(options)
        self._columns = columns

    def _packed(self, ranges: Iterable[EntryRange]) -> PackedRanges:
        return PackedRanges(ranges, keeps_links=self._options.include_link)

    def _rows(self, wanted: RangePartition) -> Iterator[pa.RecordBatch]:
        rows = read_ranges(list(wanted.ranges), self._options, wanted.chain_token)
        if self._columns is None:
            return rows
        from spark_io.payloads import parsed  # noqa: PLC0415 - only some queries need it

        return parsed(rows, self._columns)


class LedgerBatchReader(_LedgerReader, DataSourceReader):
    """Reader of a batch query: plans on the driver, reads in tasks, connects only there."""

    def __init__(self, options: ReadOptions, columns: "PayloadColumns | None" = None) -> None:
        check_bounds(options.starting_offsets, options.ending_offsets)
        super().__init__(options, columns)

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """Split the query's entries into parts of about `splitBytes`."""
        options = self._options
        client = client_of(options.client)
        selected = self._find(client)
        unended = self._read_to_the_end(selected.open_ledgers())
        if unended and not options.recover_open_ledgers:
            warn_of_hidden(client, unended, options.client.password)
        elif unended and recover(client, unended, options.client.password):
            selected = self._find(client)
        starting, ending = options.starting_offsets, options.ending_offsets
        with closing(OpenLedgers(client, options)) as opened:
            wanted = starts_and_ends(selected, starting, ending, opened.range_to)
            ranges = options.bounds.entries(wanted)
            if options.bounds.fragments:
                ranges = _of_fragments(client, list(ranges), options.bounds)
            return self._parts_of(ranges, selected.chain_token)

    def _find(self, client: LedgerClient) -> SelectedLedgers:
        options = self._options
        return find_ledgers(
            client,
            options.selection,
            options.client.password,
            fail_on_data_loss=options.fail_on_data_loss,
            remember_for=options.client,
            bounds=options.bounds,
        )

    def _read_to_the_end(self, ledgers: Iterable[EntryRange]) -> list[EntryRange]:
        """Return the ledgers of which the query also wants what is beyond the readable end."""
        ends = ends_given(self._options.ending_offsets)
        return [
            ledger
            for ledger in ledgers
            if ends.get(ledger.ledger_id, ledger.end + 1) > ledger.end
            and self._options.bounds.wants(ledger.end)
        ]


class LedgerStreamReader(_LedgerReader, StreamReader[ReadOptions]):
    """Reader of a stream of ledgers or of a chain."""

    def __init__(self, options: ReadOptions, columns: "PayloadColumns | None" = None) -> None:
        super().__init__(options, columns)
        check_stream(options)

    def _follow(self) -> FollowedSource:
        return follow(client_of(self._options.client), self._options)
