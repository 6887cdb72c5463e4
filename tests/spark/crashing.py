"""A `ledger` sink that kills the driver right before or right after publishing a batch.

After the publication means before Spark records the batch. The environment of the driver chooses
the moment and the first batch; the default is after the publication of any batch.
"""

import os
import signal

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_io import LedgerDataSource
from spark_io.ledgers.write import LedgerStreamWriter
from tests.spark.driver_process import DRIVER_GROUP

CRASH_BEFORE_PUBLISHING = "QUIRE_TEST_CRASH_BEFORE_PUBLISHING"
CRASH_FROM_BATCH = "QUIRE_TEST_CRASH_FROM_BATCH"


class CrashingWriter(LedgerStreamWriter):
    """Kills the driver before or after it publishes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        is_due = batchId >= int(os.environ.get(CRASH_FROM_BATCH, "0"))
        if is_due and CRASH_BEFORE_PUBLISHING in os.environ:
            _kill_driver()
        super().commit(messages, batchId)
        if is_due:
            _kill_driver()


class CrashingLedgers(LedgerDataSource):
    """`format("crashing-ledgers")`."""

    @classmethod
    def name(cls) -> str:
        return "crashing-ledgers"

    def streamWriter(self, schema: StructType, overwrite: bool) -> CrashingWriter:  # noqa: N802
        super().streamWriter(schema, overwrite)  # creates the chain
        return CrashingWriter(self._write_options(schema), overwrite=overwrite)


def _kill_driver() -> None:
    """Kill the driver and its Java, and then this worker, which is in another process group."""
    os.killpg(int(os.environ[DRIVER_GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
