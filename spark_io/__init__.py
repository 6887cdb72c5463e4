"""Spark data sources and sinks over ledgers and topics.

Leaves reading and writing entries to `ledger_client`. The package can be imported without PySpark;
what needs PySpark reports that when it is used.

- `common_options`: options that all data sources share.
- `ranges`: ranges of ledgers, packed, and split into parts.
- `offsets`: what the offsets of all streams share: identities, and limits of micro-batches.
- `readers`: what Spark calls of both data sources, for batch queries and for streams.
- `workers`: clients of Spark's Python workers, and the errors that they report.
- `progress`: backlog of a streaming query.
- `launching`: starts Spark where only Python packages are installed.
- `errors`: failures of Spark jobs.
- `payloads`: payloads of ledgers as columns.
- `ledgers/`: data source of ledgers.
- `topics/`: data source of topics.
- `pipelines/`: jobs.
"""

from typing import TYPE_CHECKING

import ledger_client.own_packages  # noqa: F401 - fails if one of Quire's packages is hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_io.ledgers.source import LedgerDataSource
    from spark_io.topics.source import TopicDataSource

__all__ = ["LedgerDataSource", "TopicDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register `format("ledger")` and `format("topic")` with a session, and make it the active one
    of this thread. If it runs on this machine, its tasks run with this Python unless PYSPARK_PYTHON
    names another one.

    Call it for each session, also for those of `newSession()`, and in each thread that writes.
    """
    from spark_io.launching import make_active, use_this_python  # noqa: PLC0415
    from spark_io.ledgers.source import LedgerDataSource  # noqa: PLC0415 - only now PySpark is needed
    from spark_io.topics.source import TopicDataSource  # noqa: PLC0415

    use_this_python(spark)
    make_active(spark)
    spark.dataSource.register(LedgerDataSource)
    spark.dataSource.register(TopicDataSource)


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        if name == "LedgerDataSource":
            from spark_io.ledgers.source import LedgerDataSource  # noqa: PLC0415

            return LedgerDataSource
        if name == "TopicDataSource":
            from spark_io.topics.source import TopicDataSource  # noqa: PLC0415

            return TopicDataSource
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
