"""Spark data sources and sinks over ledgers and topics.

It leaves reading and writing entries to `ledger_client`. Without PySpark the package can be
imported; what needs it says so when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_io.source import LedgerDataSource

__all__ = ["LedgerDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make `format("ledger")` known to a session."""
    from spark_io.source import LedgerDataSource  # noqa: PLC0415 - only now PySpark is needed

    spark.dataSource.register(LedgerDataSource)


def __getattr__(name: str) -> object:
    if name == "LedgerDataSource":
        from spark_io.source import LedgerDataSource  # noqa: PLC0415

        return LedgerDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
