"""Ingest of lines of files, or of any DataFrame, into ledgers of a chain.

Leaves the writing to the `ledger` data source.

Invariants: all rows are published in one step, or none; a run that is repeated with the same name
and number publishes nothing twice.

Source: Spark design, "Pipelines".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from spark_io.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Additions to a chain."""

    chain: str
    ledger_count: int
    entry_count: int
    payload_bytes: int


def lines_of(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Return the lines of text files as a column `data`, file after file.

    Spark splits a large file into parts and may read a small last part first. Lines within a part
    keep their order.
    """
    frames = [spark.read.text(path).withColumnRenamed("value", "data") for path in paths]
    return reduce(lambda one, other: one.union(other), frames)


def rows_as_json(frame: "DataFrame") -> "DataFrame":
    """Return a DataFrame of any columns as one column `data`: each row as a JSON object."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the usual name

    return frame.select(F.to_json(F.struct("*")).alias("data"))


def ingest(
    frame: "DataFrame",
    metadata: str,
    chain: str,
    *,
    options: Mapping[str, str] | None = None,
    replaces: bool = False,
) -> IngestResult:
    """Append the column `data` (binary or string) of a DataFrame to a chain; return the additions.
    `options` are those of the `ledger` sink.
    """
    from spark_io.ledgers.options import WriteOptions  # noqa: PLC0415
    from spark_io.ledgers.selecting import read_links  # noqa: PLC0415
    from spark_io.workers import client_of  # noqa: PLC0415

    if frame.columns != ["data"]:
        raise SchemaError(
            f"the only column must be `data`, but there are {frame.columns}: rename it, or use "
            "rows_as_json()"
        )
    given = {"metadata": metadata, "chain": chain, **(options or {})}
    checked = WriteOptions.of(given)
    client = client_of(checked.client)
    handle = client.chain(chain)
    handle.create(exist_ok=True)
    before = handle.info()
    mode = "overwrite" if replaces else "append"
    frame.write.format("ledger").options(**given).mode(mode).save()
    after = handle.info()
    new = replace(after, first_index=before.next_index)
    added = read_links(client, new, checked.client.password)
    ledgers = [ledger for link in added for ledger in link.ledgers]
    return IngestResult(
        chain,
        len(ledgers),
        sum(ledger.end for ledger in ledgers),
        round(sum(ledger.end * ledger.entry_bytes for ledger in ledgers)),
    )
