"""Reader of a stream that was refused: it raises the reason at the first call.

PySpark 4.3 hides an error of `streamReader` behind an UnboundLocalError of its own, and shows those
of a reader's methods.

Source: measured: PySpark 4.3, `python_streaming_source_runner`.
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_io.errors import SparkIoError
from spark_io.sentence_first import sentence_first


class RefusedStreamReader(DataSourceStreamReader):
    """Reader that only raises `error`."""

    def __init__(self, error: SparkIoError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error, at the start of a new query."""
        self._refuse()

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802 - without limits
        """Raise the error, at the start of a query with a checkpoint."""
        self._refuse()

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> NoReturn:
        """Raise the error, at the restart of a micro-batch."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error. Nothing is planned, so no task calls this."""
        self._refuse()

    @sentence_first()
    def _refuse(self) -> NoReturn:
        raise self._error


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return the reader that `make` returns, or one that raises the error of `make`."""
    try:
        return make()
    except SparkIoError as error:
        return RefusedStreamReader(error)
