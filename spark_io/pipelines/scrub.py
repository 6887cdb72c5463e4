"""Scrub: reads every replica of every entry of closed ledgers, and finds missing and bad copies.

Leaves reading one ledger's replicas to `ledger_client.reading.verification`. Repairs nothing.

Invariants: nothing is written; an unreachable bookie is a separate finding, and its entries are
never called missing; an open ledger is left out, or refused if it was named.

Source: Spark design, "Pipelines"; protocol rules 3.2 and 9.4.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ledger_client import LedgerInfo, LedgerNotFoundError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import Cluster, open_cluster, read_ledger
from ledger_client.digest import LedgerKeys
from ledger_client.reading.verification import ReplicaReport, verify_replicas
from ledger_client.sync import LedgerClient
from metadata.ids import LedgerId
from metadata.ledgers.copies import copies_of
from metadata.ledgers.ledger_metadata import LedgerMetadata
from spark_io.errors import SparkIoError
from spark_io.ledgers.options import ReadOptions
from spark_io.workers import client_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from metadata.ledgers.entry_ranges import Range

MISSING: Final = "missing"
CORRUPT: Final = "corrupt"
DIFFERING: Final = "differing"
UNREACHABLE: Final = "unreachable"
UNDER_REPLICATED: Final = "under_replicated"
DDL: Final = (
    "ledger_id bigint, first_entry_id bigint, last_entry_id bigint, bookie string, "
    "finding string, detail string"
)
TASKS_PER_CORE: Final = 4
_SCHEMA = pa.schema(
    [
        ("ledger_id", pa.int64()),
        ("first_entry_id", pa.int64()),
        ("last_entry_id", pa.int64()),
        ("bookie", pa.string()),
        ("finding", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class BadRange:
    """One range of entries with a bad or missing replica."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    bookie: str
    """Empty if the range has too few members, which concerns no single bookie."""
    finding: str
    """`missing`, `corrupt`, `differing`, `unreachable` or `under_replicated`."""
    detail: str = ""


def scrub(
    spark: "SparkSession",
    metadata: str,
    ledger_ids: Sequence[int] | None = None,
    *,
    password: bytes = b"",
) -> "DataFrame":
    """Return the findings in closed ledgers, by default in all of them, as a DataFrame.

    Columns: ledger_id, first_entry_id, last_entry_id, bookie, finding, detail. Each action on it
    reads the replicas again: cache it. Raises LedgerNotFoundError for a named ledger that does not
    exist, SparkIoError for a named ledger that is open. A ledger with a different password is
    reported as corrupt.
    """
    if ledger_ids is None:
        ids = closed_ledger_ids(metadata)
    else:
        named = list(dict.fromkeys(ledger_ids))
        client = _client(metadata)
        infos = closed_ledgers(client, named, cannot_be="checked", are="scrubbed")
        ids = [int(info.id) for info in infos]
    count = max(1, min(len(ids), _tasks_most(spark)))
    rows = spark.createDataFrame([(id_,) for id_ in ids], "ledger_id bigint")
    dealt = rows.repartitionByRange(count, "ledger_id")
    return dealt.mapInArrow(partial(_scrub_task, metadata, password), DDL)


def _tasks_most(spark: "SparkSession") -> int:
    """Return how many tasks a scrub has at most. A client of Spark Connect does not know the cores,
    so Spark's own number of tasks after a shuffle is taken there.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if isinstance(spark, SparkSession):
        return int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def findings_of(frame: "DataFrame") -> list[BadRange]:
    """Return the findings as values, for repair."""
    return [BadRange(**row.asDict()) for row in frame.collect()]


def closed_ledger_ids(metadata: str) -> list[int]:
    """Return the ids of all closed ledgers. Raises MetadataUnavailableError."""
    return [int(info.id) for info in _client(metadata).list_ledgers() if info.is_closed]


def closed_ledgers(
    client: LedgerClient, ledger_ids: Sequence[int], *, cannot_be: str, are: str
) -> Iterator[LedgerInfo]:
    """Yield the ledgers. A missing one `cannot_be` archived, for example, and only closed ones
    `are`. Raises LedgerNotFoundError, SparkIoError for an open ledger.
    """
    for ledger_id, info in zip(ledger_ids, client.ledger_infos(ledger_ids), strict=True):
        if info is None:
            text = f"it does not exist, so it cannot be {cannot_be}"
            text = f"{text}: `quire ledger list` shows the others"
            raise LedgerNotFoundError(text, ledger_id=LedgerId(ledger_id))
        if not info.is_closed:
            verb = f"quire ledger recover {ledger_id}"
            text = f"ledger {ledger_id} is {info.state}, and only closed ledgers are {are}"
            raise SparkIoError(f"{text}: close it, or recover it: {verb}")
        yield info


def _client(metadata: str) -> LedgerClient:
    return client_of(ReadOptions.of({"metadata": metadata, "ledger": "0"}).client)


def _scrub_task(
    metadata: str, password: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Scrub the ledgers of one task, in a separate event loop."""
    ids = [id_ for batch in batches for id_ in batch.column(0).to_pylist()]
    findings = asyncio.run(_scrub(metadata, password, ids))
    columns = [list(column) for column in zip(*map(_as_row, findings), strict=True)]
    arrays = columns or [[] for _ in _SCHEMA]
    yield pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(arrays, _SCHEMA, strict=True)],
        schema=_SCHEMA,
    )


async def _scrub(metadata: str, password: bytes, ids: Iterable[int]) -> list[BadRange]:
    findings: list[BadRange] = []
    async with open_cluster(metadata) as cluster:
        pool = cluster.open_pool()
        try:
            for ledger_id in ids:
                findings += await _scrub_ledger(cluster, pool, password, LedgerId(ledger_id))
        finally:
            await pool.aclose()
    return findings


async def _scrub_ledger(
    cluster: Cluster, pool: BookiePool, password: bytes, ledger_id: LedgerId
) -> list[BadRange]:
    try:
        ledger, _ = await read_ledger(cluster, ledger_id)
    except LedgerNotFoundError:
        return []  # deleted since it was listed
    last = ledger.last_entry_id
    if last is None or last < 0:
        return []
    keys = LedgerKeys.of(ledger, password)
    pool.attach(ledger_id, keys.master_key)
    try:
        reports = await verify_replicas(pool, ledger, keys, last, _ignore)
    finally:
        pool.detach(ledger_id)
    bad = [bad_range for report in reports for bad_range in _of_report(ledger_id, report)]
    return bad + list(_short_fragments(ledger))


def _of_report(ledger_id: int, report: ReplicaReport) -> Iterator[BadRange]:
    bookie = str(report.bookie_id)
    if report.error:
        for first, last in report.expected:
            yield BadRange(ledger_id, first, last, bookie, UNREACHABLE, report.error)
        return
    kinds: tuple[tuple[str, list[Range]], ...] = (
        (MISSING, report.missing),
        (CORRUPT, report.bad),
        (DIFFERING, report.differing),
    )
    for kind, ranges in kinds:
        for first, last in ranges:
            yield BadRange(ledger_id, first, last, bookie, kind)


def _short_fragments(ledger: LedgerMetadata) -> Iterator[BadRange]:
    """Yield the fragments of an in-sync ledger that have too few members."""
    for copy in copies_of(ledger):
        if copy.lacking_members and copy.last_entry_id is not None:
            why = f"{len(copy.ensemble)} members of {copy.wanted}"
            first, last = int(copy.first_entry_id), int(copy.last_entry_id)
            yield BadRange(int(ledger.ledger_id), first, last, "", UNDER_REPLICATED, why)


def _as_row(finding: BadRange) -> tuple[int, int, int, str, str, str]:
    return (
        finding.ledger_id,
        finding.first_entry_id,
        finding.last_entry_id,
        finding.bookie,
        finding.finding,
        finding.detail,
    )


def _ignore(_count: int) -> None:
    """Ignore progress: Spark shows the progress of tasks."""
