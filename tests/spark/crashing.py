"""A `ledger` sink that kills the driver right after publishing a batch, before Spark records it."""

import os
import signal

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_io import LedgerDataSource
from spark_io.ledgers.write import LedgerStreamWriter
from tests.spark.exactly_once import DRIVER_GROUP


class CrashingWriter(LedgerStreamWriter):
    """Publishes a batch, then kills the driver."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        os.killpg(int(os.environ[DRIVER_GROUP]), signal.SIGKILL)


class CrashingLedgers(LedgerDataSource):
    """`format("crashing-ledgers")`."""

    @classmethod
    def name(cls) -> str:
        return "crashing-ledgers"

    def streamWriter(self, schema: StructType, overwrite: bool) -> CrashingWriter:  # noqa: N802
        return CrashingWriter(self._write_options(schema), overwrite=overwrite)
