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


def batches(
    rows: int, entry_bytes: int, batch_rows: int, pool_rows: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield rows of random bytes that are generated once: the same in each row, or `pool_rows`
    different ones of printable bytes, again and again.
    """
    rng = Random(1)
    if pool_rows:
        texts = [rng.randbytes(entry_bytes).hex().encode() for _ in range(pool_rows)]
        data = pa.array([text[:entry_bytes] for text in texts], pa.binary())
    else:
        data = pa.array([rng.randbytes(entry_bytes)] * batch_rows, pa.binary())
    first = 0
    while first < rows:
        at = first % len(data)
        count = min(batch_rows, rows - first, len(data) - at)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(1, pa.int64()), count),
                pa.array(range(first, first + count), pa.int64()),
                pa.repeat(pa.scalar(0, pa.int32()), count),
                data.slice(at, count),
            ],
            names=["ledger_id", "entry_id", "fragment", "data"],
        )
        first += count


class MemoryReader(DataSourceReader):
    """Reader of rows from memory."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows = int(options.get("rows", "1000"))
        self._parts = int(options.get("parts", "2"))
        self._entry_bytes = int(options.get("entrybytes", "1024"))
        self._batch_rows = int(options.get("batchrows", "2048"))
        self._pool_rows = int(options.get("poolrows", "0"))

    def partitions(self) -> list[InputPartition]:
        """Divide the rows among tasks."""
        return [Part(self._rows // self._parts) for _ in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, Part)
        return batches(partition.rows, self._entry_bytes, self._batch_rows, self._pool_rows)


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
