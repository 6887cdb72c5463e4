"""Copies closed ledgers into Parquet files, and back into ledgers.

Leaves reading ledgers to the `ledger` source, and files to Spark.

Format below `path`:

    entries/ledger_id=17/*.parquet   entry_id bigint, fragment int, data binary, crc32c bigint
    ledgers/*.parquet                one row for each archived ledger: its entries and bytes, and
                                     what it was created with

Invariants: a ledger has a row in `ledgers` only after its files were read back and found whole, so
an archive that was cut off goes on with the ledgers that have none; `crc32c` is of the payload as
it was read from a bookie, whose digest had been checked; nothing is deleted.

Source: Spark design, "Pipelines".
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from crc32c import crc32c

from ledger_client import LedgerInfo
from spark_io.errors import DataLostError, SparkIoError
from spark_io.options import ClientOptions, ReadOptions, WriteOptions
from spark_io.worker_client import client_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRIES: Final = "entries"
LEDGERS: Final = "ledgers"
LEDGERS_PER_STEP: Final = 64
"""Ledgers that are archived, read back and noted together."""
RESTORED_FROM: Final = "quire.restored_from"
"""Custom metadata of a restored ledger: the id that it had."""
ARCHIVED_DDL: Final = (
    "ledger_id bigint, entry_count bigint, length bigint, ensemble int, write_quorum int, "
    "ack_quorum int, created_ms bigint, metadata string"
)
RESTORED_DDL: Final = (
    "archived_id bigint, ledger_id bigint, created_ms bigint, last_entry_id bigint, length bigint"
)


class ArchiveDamagedError(SparkIoError):
    """Files of an archive are not what was written."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did."""

    ledger_count: int
    entry_count: int
    payload_bytes: int
    skipped_count: int
    """Ledgers that the archive had already."""


def archive(
    spark: "SparkSession",
    metadata: str,
    path: str,
    ledger_ids: Sequence[int],
    *,
    options: Mapping[str, str] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Archived:
    """Copy closed ledgers into files below `path`, which may be of any file system that Spark
    knows; those that are there already are left alone. `on_step` is told (done, all).

    Raises SparkIoError for a ledger that is open, ArchiveDamagedError if what was written does not
    read back the same; what came before stays archived.
    """
    given = {"metadata": metadata, **(options or {}), "ledgers": ",".join(map(str, ledger_ids))}
    client = client_of(ReadOptions.of(given).client)
    there = _archived_ids(spark, path)
    wanted = [each for each in ledger_ids if each not in there]
    entry_count = payload_bytes = 0
    for start in range(0, len(wanted), LEDGERS_PER_STEP):
        step = wanted[start : start + LEDGERS_PER_STEP]
        infos = [
            _closed(info, each) for info, each in zip(client.ledger_infos(step), step, strict=True)
        ]
        read = given | {"ledgers": ",".join(map(str, step))}
        entries = spark.read.format("ledger").options(**read).load()
        with_digest = entries.mapInArrow(_add_digest, f"{_ddl(entries)}, crc32c bigint")
        writing = with_digest.write.mode("overwrite").partitionBy("ledger_id")
        writing.option("partitionOverwriteMode", "dynamic").parquet(f"{path}/{ENTRIES}")
        _check(spark, path, infos)
        rows = [_row(info) for info in infos]
        spark.createDataFrame(rows, ARCHIVED_DDL).coalesce(1).write.mode("append").parquet(
            f"{path}/{LEDGERS}"
        )
        entry_count += sum(_entry_count(info) for info in infos)
        payload_bytes += sum(info.length or 0 for info in infos)
        if on_step is not None:
            on_step(min(start + len(step), len(wanted)), len(wanted))
    return Archived(len(wanted), entry_count, payload_bytes, len(ledger_ids) - len(wanted))


def restore(
    spark: "SparkSession",
    metadata: str,
    path: str,
    chain: str,
    *,
    ledger_ids: Sequence[int] | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[int, int]:
    """Write archived ledgers, by default all, into new ledgers, and publish them in a chain in the
    order of their old ids; return old id -> new id.

    A ledger keeps its entries with their ids, and its custom metadata; the old id is
    `quire.restored_from`. Those that the chain holds already are left alone, so a run that was cut
    off can be repeated. Raises ArchiveDamagedError.
    """
    checked = WriteOptions.of({"metadata": metadata, "chain": chain, **(options or {})})
    client = client_of(checked.client)
    handle = client.chain(chain)
    handle.create(exist_ok=True)
    done = _restored_ids(checked.client, chain)
    noted = {row.ledger_id: row for row in spark.read.parquet(f"{path}/{LEDGERS}").collect()}
    wanted = [each for each in sorted(ledger_ids or noted) if each not in done]
    unknown = [each for each in wanted if each not in noted]
    if unknown:
        raise ArchiveDamagedError(f"the archive at {path} does not hold ledgers {unknown}")
    if not wanted:
        return done
    with_entries = [each for each in wanted if noted[each].entry_count]
    told = {each: noted[each].metadata for each in with_entries}
    columns = _stored(spark, path, with_entries)
    sorted_rows = columns.repartition(max(1, len(with_entries)), "ledger_id").sortWithinPartitions(
        "ledger_id", "entry_id"
    )
    restoring = partial(_restore_task, checked, told)
    rows = sorted_rows.mapInArrow(restoring, RESTORED_DDL).collect()
    written = {row.archived_id: row for row in rows}
    for each in with_entries:
        found = -1 if each not in written else written[each].last_entry_id + 1
        if found != noted[each].entry_count:
            raise ArchiveDamagedError(
                f"ledger {each} had {noted[each].entry_count} entries when it was archived, and "
                f"{path} holds {found}: nothing was published"
            )
    from metadata.chain import LinkedLedger  # noqa: PLC0415

    linked = [
        LinkedLedger(row.ledger_id, row.created_ms, row.last_entry_id, row.length)
        for row in (written[each] for each in with_entries)
    ]
    handle.publish(linked)
    return done | {each: written[each].ledger_id for each in with_entries}


def _restored_ids(options: ClientOptions, chain: str) -> dict[int, int]:
    """Return what a chain holds of restored ledgers: old id -> new id."""
    client = client_of(options)
    handle = client.chain(chain)
    info = handle.info()
    links = handle.links(info.first_index, info.next_index)
    ids = [each.ledger_id for _, link in links if link is not None for each in link.ledgers]
    found: dict[int, int] = {}
    for each in client.ledger_infos(ids):
        old = None if each is None else each.metadata.get(RESTORED_FROM)
        if each is not None and isinstance(old, str):
            found[int(old)] = int(each.id)
    return found


def _restore_task(
    options: WriteOptions, metadata: Mapping[int, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the ledgers of one task, one after the other; their rows come sorted."""
    client = client_of(options.client)
    chain = client.chain(options.chain)
    rows = _Ledgers(batches)
    for archived_id in rows:
        custom = {**json.loads(metadata[archived_id]), **chain.custom_metadata}
        with client.create_ledger(
            options.quorum,
            digest=options.digest,
            password=options.client.password,
            metadata={**custom, RESTORED_FROM: str(archived_id)},
        ) as writer:
            writer.append_many(rows.payloads(archived_id))
        info = writer.info
        values = [archived_id, info.id, info.created_ms, info.last_entry_id, info.length]
        names = ("archived_id", "ledger_id", "created_ms", "last_entry_id", "length")
        arrays = [pa.array([value], pa.int64()) for value in values]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


class _Ledgers:
    """Sorted rows of several ledgers, dealt out ledger by ledger, each entry checked."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._rows = (row for batch in batches for row in _rows_of(batch))
        self._next = next(self._rows, None)

    def __iter__(self) -> Iterator[int]:
        while self._next is not None:
            yield self._next[0]

    def payloads(self, ledger_id: int) -> Iterator[bytes]:
        """Yield the payloads of one ledger. Raises ArchiveDamagedError for a gap or a bad one."""
        expected = 0
        while self._next is not None and self._next[0] == ledger_id:
            _, entry_id, data, digest = self._next
            if entry_id != expected:
                text = f"ledger {ledger_id}: entry {expected} is missing in the archive"
                raise ArchiveDamagedError(text)
            if crc32c(data) != digest:
                text = f"ledger {ledger_id}: entry {entry_id} is damaged in the archive"
                raise ArchiveDamagedError(text)
            yield data
            expected += 1
            self._next = next(self._rows, None)


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes, int]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _archived_ids(spark: "SparkSession", path: str) -> frozenset[int]:
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        rows = spark.read.schema(ARCHIVED_DDL).parquet(f"{path}/{LEDGERS}").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return frozenset()
    return frozenset(row.ledger_id for row in rows)


def _check(spark: "SparkSession", path: str, infos: Sequence[LedgerInfo]) -> None:
    """Read back what was written of some ledgers. Raises ArchiveDamagedError."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    ids = [int(info.id) for info in infos if _entry_count(info)]
    if not ids:
        return
    columns = _stored(spark, path, ids)
    checked = columns.mapInArrow(_check_digests, "ledger_id bigint, entry_id bigint, size bigint")
    found = {
        row.ledger_id: row
        for row in checked.groupBy("ledger_id")
        .agg(
            F.count("*").alias("entries"),
            F.countDistinct("entry_id").alias("ids"),
            F.max("entry_id").alias("last"),
            F.sum("size").alias("size"),
        )
        .collect()
    }
    for info in infos:
        row, count = found.get(int(info.id)), _entry_count(info)
        whole = row is not None and (row.entries, row.ids, row.last, row.size) == (
            count,
            count,
            count - 1,
            info.length,
        )
        if count and not whole:
            raise ArchiveDamagedError(
                f"ledger {info.id} has {count} entries of {info.length} bytes, and the files in "
                f"{path} hold {row}: run it again"
            )


def _stored(spark: "SparkSession", path: str, ledger_ids: Sequence[int]) -> "DataFrame":
    """Return the archived entries of some ledgers. Spark guesses the type of a directory's name."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    ledger_id = F.col("ledger_id").cast("bigint")
    entries = spark.read.parquet(f"{path}/{ENTRIES}").where(ledger_id.isin(list(ledger_ids)))
    return entries.select(ledger_id.alias("ledger_id"), "entry_id", "data", "crc32c")


def _add_digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        digests = pa.array([crc32c(each) for each in batch.column("data").to_pylist()], pa.int64())
        schema = batch.schema.append(pa.field("crc32c", pa.int64()))
        yield pa.RecordBatch.from_arrays([*batch.columns, digests], schema=schema)


def _check_digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = list(_rows_of(batch))
        for ledger_id, entry_id, data, digest in rows:
            if crc32c(data) != digest:
                raise ArchiveDamagedError(
                    f"ledger {ledger_id}: entry {entry_id} reads back damaged"
                )
        sizes = pa.array([len(data) for _, _, data, _ in rows], pa.int64())
        arrays = [batch.column("ledger_id"), batch.column("entry_id"), sizes]
        yield pa.RecordBatch.from_arrays(arrays, names=["ledger_id", "entry_id", "size"])


def _closed(info: LedgerInfo | None, ledger_id: int) -> LedgerInfo:
    if info is None:
        raise DataLostError(ledger_id, 0, -1, "there is no such ledger")
    if not info.is_closed:
        raise SparkIoError(f"ledger {ledger_id} is {info.state}: only closed ledgers are archived")
    return info


def _entry_count(info: LedgerInfo) -> int:
    return 0 if info.last_entry_id is None else info.last_entry_id + 1


def _row(info: LedgerInfo) -> tuple[int, int, int, int, int, int, int, str]:
    custom = {
        name: value if isinstance(value, str) else value.decode("latin-1")
        for name, value in info.metadata.items()
    }
    quorum = info.quorum
    return (
        int(info.id),
        _entry_count(info),
        info.length or 0,
        quorum.ensemble_size,
        quorum.write_quorum,
        quorum.ack_quorum,
        info.created_ms,
        json.dumps(custom),
    )


def _ddl(frame: "DataFrame") -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
