"""Sources and sinks that only move bytes between Python and Spark: the maximum speed of any.

Leaves the comparisons to `benchmarks.spark.spark_scan` and `benchmarks.spark.spark_write`. The rows
are those of the `ledger` source, in batches of the same size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_io.ledgers.rows import DDL


@dataclass
class Part(InputPartition):
    """Number of rows of one task."""

    rows: int


def batches(rows: int, entry_bytes: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of random bytes that are generated once."""
    payload = Random(1).randbytes(entry_bytes)
    data = pa.array([payload] * batch_rows, pa.binary())
    for first in range(0, rows, batch_rows):
        count = min(batch_rows, rows - first)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(1, pa.int64()), count),
                pa.array(range(first, first + count), pa.int64()),
                pa.repeat(pa.scalar(0, pa.int32()), count),
                data.slice(0, count),
            ],
            names=["ledger_id", "entry_id", "fragment", "data"],
        )


class MemoryReader(DataSourceReader):
    """Reader of rows from memory."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows = int(options.get("rows", "1000"))
        self._parts = int(options.get("parts", "2"))
        self._entry_bytes = int(options.get("entrybytes", "1024"))
        self._batch_rows = int(options.get("batchrows", "2048"))

    def partitions(self) -> list[InputPartition]:
        """Divide the rows among tasks."""
        return [Part(self._rows // self._parts) for _ in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, Part)
        return batches(partition.rows, self._entry_bytes, self._batch_rows)


class NothingWriter(DataSourceArrowWriter):
    """Writer that drops its rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count the rows."""
        for batch in iterator:
            assert batch.num_rows >= 0
        return WriterCommitMessage()


class EmptyStream(DataSourceStreamReader):
    """A stream that always has a next offset, but no rows."""

    def __init__(self) -> None:
        self._offset = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the first offset."""
        return {"offset": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:  # noqa: N802
        """Return a new offset at each call."""
        self._offset += 1
        return {"offset": self._offset}

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        """Return one task without work."""
        return [Part(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        return iter(())


class MemoryDataSource(DataSource):
    """`format("memory-ceiling")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "memory-ceiling"

    def schema(self) -> str:
        """Return the columns of the ledger source."""
        return DDL

    def reader(self, schema: StructType) -> MemoryReader:
        """Return the reader that generates rows."""
        return MemoryReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> NothingWriter:  # noqa: FBT001
        """Return the writer that drops rows."""
        return NothingWriter()

    def streamReader(self, schema: StructType) -> EmptyStream:  # noqa: N802
        """Return the stream without rows."""
        return EmptyStream()
