"""Batch reads of ledgers as a DataFrame.

Leaves finding the ledgers to `selecting`, splitting to `splits`, and reading to `reading`.

Invariants: a query sees each ledger as it was when the query was planned.

Spark's filters are not pushed down, because Spark 4.3 applies the filters of one query to the next
query of the same DataFrame too (decision 0011).

Source: Spark design, "Reading".
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ledger_client.sync import LedgerClient
from spark_io.ledgers.abandoned import recover, warn_of_hidden
from spark_io.ledgers.bounds import Bounds
from spark_io.ledgers.known_ledgers import infos_of
from spark_io.ledgers.open_ledgers import OpenLedgers
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.packed_ranges import PackedRanges
from spark_io.ledgers.positions import check_bounds, ends_given, starts_and_ends
from spark_io.ledgers.reading import read_ranges
from spark_io.ledgers.selecting import SelectedLedgers, find_ledgers
from spark_io.ledgers.splits import EntryRange, KnownLedger, plan_splits
from spark_io.sentence_first import sentence_first
from spark_io.worker_client import client_of


@dataclass
class RangePartition(InputPartition):
    """Input of one task."""

    ranges: PackedRanges
    chain_token: bytes | None = None
    """Identity of the chain that links the ledgers; None without a chain."""


def partitions_of(
    ranges: Iterable[EntryRange], options: ReadOptions, chain_token: bytes | None
) -> list[InputPartition]:
    """Split ranges into partitions according to the options. Without ranges return one empty
    partition, because Spark would otherwise read a partition None.
    """
    parts = plan_splits(
        (
            PackedRanges(ranges, keeps_links=options.include_link)
            if options.min_partitions > 1
            else ranges
        ),
        split_bytes=options.split_bytes,
        split_entries=options.split_entries,
        min_partitions=options.min_partitions,
    )
    packed = [PackedRanges(part, keeps_links=options.include_link) for part in parts]
    return [RangePartition(each, chain_token) for each in packed] or [
        RangePartition(PackedRanges())
    ]


def _of_fragments(
    client: LedgerClient, ranges: list[EntryRange], bounds: Bounds
) -> Iterator[EntryRange]:
    """Return the parts of ranges that are in the wanted fragments, which ledgers' metadata has. A
    deleted ledger is left to the task that reads it.
    """
    infos = infos_of(client, [each.ledger_id for each in ranges])
    fragments = {int(info.id): info.fragments for info in infos if info is not None}
    return bounds.of_fragments(ranges, fragments)


class LedgerBatchReader(DataSourceReader):
    """Reader of a batch query: plans on the driver, reads in tasks, connects only there."""

    def __init__(self, options: ReadOptions) -> None:
        check_bounds(options.starting_offsets, options.ending_offsets)
        self._options = options

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """Split the query's entries into parts of about `splitBytes`."""
        options = self._options
        client = client_of(options.client)
        found = self._find(client)
        unended = self._read_to_the_end(found.open_ledgers())
        if unended and not options.recover_open_ledgers:
            warn_of_hidden(client, unended, options.client.password)
        elif unended and recover(client, unended, options.client.password):
            found = self._find(client)
        starting, ending = options.starting_offsets, options.ending_offsets
        with closing(OpenLedgers(client, options)) as opened:
            wanted = starts_and_ends(found.ledgers, starting, ending, opened.range_to)
            ranges = options.bounds.entries(wanted)
            if options.bounds.fragments:
                ranges = _of_fragments(client, list(ranges), options.bounds)
            return partitions_of(ranges, options, found.chain_token)

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

    def _read_to_the_end(self, ledgers: Iterable[KnownLedger]) -> list[KnownLedger]:
        """Return the ledgers of which the query also wants what is beyond the readable end."""
        ends = ends_given(self._options.ending_offsets)
        return [
            each
            for each in ledgers
            if ends.get(each.ledger_id, each.end + 1) > each.end
            and self._options.bounds.wants(each.end)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one part."""
        assert isinstance(partition, RangePartition), "partitions() made it"
        with sentence_first():
            yield from read_ranges(list(partition.ranges), self._options, partition.chain_token)
