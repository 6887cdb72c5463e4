"""Readers of the `ledger` source that return the columns of payloads.

Leaves reading to the readers of ledger rows, and parsing to `parsing`.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_io.ledgers.batch import LedgerBatchReader
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.stream import LedgerStreamReader
from spark_io.payloads.parsing import parsed
from spark_io.payloads.payload_columns import PayloadColumns
from spark_io.sentence_first import sentence_first


class ParsedBatchReader(LedgerBatchReader):
    """Reader of a batch query over parsed payloads."""

    def __init__(self, options: ReadOptions, columns: PayloadColumns) -> None:
        super().__init__(options)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the parsed entries of one part."""
        with sentence_first():
            yield from parsed(super().read(partition), self._columns)


class ParsedStreamReader(LedgerStreamReader):
    """Reader of a stream of parsed payloads."""

    def __init__(self, options: ReadOptions, columns: PayloadColumns) -> None:
        super().__init__(options)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the parsed entries of one part."""
        with sentence_first():
            yield from parsed(super().read(partition), self._columns)
