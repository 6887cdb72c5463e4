"""Spark data sources and sinks over ledgers and topics.

Leaves reading and writing entries to `ledger_client`. The package can be imported without PySpark;
what needs PySpark reports that when it is used.

- `common_options`: options that all data sources share.
- `columns`: comparison of the columns of a DataFrame with those of a data source.
- `identities`: identities of chains, ledgers and topics in the offsets of streams.
- `progress`: backlog of a streaming query.
- `streaming_query`: identity of the streaming query that a task belongs to.
- `refused_stream`: reader of a stream that was refused.
- `worker_client`: one ledger client per process and cluster.
- `launching`: starts Spark where only Python packages are installed.
- `errors`: failures of Spark jobs.
- `sentence_first`: errors whose text comes first in Spark's message.
- `ledgers/`: data source of ledgers.
- `payloads/`: payloads of ledgers as columns.
- `topics/`: data source of topics.
- `pipelines/`: jobs.
"""

from typing import TYPE_CHECKING

import ledger_client.own_packages  # noqa: F401 - fails if one of Quire's packages is hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_io.ledgers.source import LedgerDataSource
    from spark_io.topics.topic_source import TopicDataSource

__all__ = ["LedgerDataSource", "TopicDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register `format("ledger")` and `format("topic")` with a session, and make it the active one
    of this thread. If it runs on this machine, its tasks run with this Python unless PYSPARK_PYTHON
    names another one.

    Call it for each session, also for those of `newSession()`, and in each thread that writes.
    """
    from spark_io.launching import make_active, use_this_python  # noqa: PLC0415
    from spark_io.ledgers.source import LedgerDataSource  # noqa: PLC0415 - only now PySpark is needed
    from spark_io.topics.topic_source import TopicDataSource  # noqa: PLC0415

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
            from spark_io.topics.topic_source import TopicDataSource  # noqa: PLC0415

            return TopicDataSource
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
