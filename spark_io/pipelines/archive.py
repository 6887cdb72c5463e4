"""Archive: copies of closed ledgers in Parquet files.

Leaves reading ledgers to the `ledger` source, files to Spark, and the way back to `restore`.

Format below `path`:

    entries/ledger_id=17/*.parquet   entry_id bigint, fragment int, data binary, crc32c bigint
    ledgers/*.parquet                one row for each archived ledger: its entries and bytes, and
                                     what it was created with; `encryption` is null for plain
                                     payloads, and a JSON object for ciphertext

Invariants: a ledger has a row in `ledgers` only after its files were read back and found complete,
so an interrupted archive continues with the ledgers without a row; `crc32c` is of the payload as
read from a bookie, after its digest was checked; nothing is deleted; payloads of encrypted ledgers
are archived as ciphertext.

Source: Spark design, "Pipelines".
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from crc32c import crc32c

from ledger_client import LedgerInfo
from metadata.ids import UpdateToken
from metadata.ledgers.payload_encryption import Cipher, PayloadEncryption
from spark_io.errors import SparkIoError
from spark_io.ledgers.options import ReadOptions
from spark_io.pipelines.scrub import closed_ledgers
from spark_io.workers import client_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ENTRIES: Final = "entries"
LEDGERS: Final = "ledgers"
LEDGERS_PER_STEP: Final = 64
"""Number of ledgers that are archived, read back and recorded together."""
ARCHIVED_DDL: Final = (
    "ledger_id bigint, entry_count bigint, length bigint, ensemble int, write_quorum int, "
    "ack_quorum int, digest string, created_ms bigint, metadata string, encryption string"
)


class ArchiveDamagedError(SparkIoError):
    """Files of an archive differ from what was written."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """Result of one run."""

    ledger_count: int
    entry_count: int
    payload_bytes: int
    skipped_count: int
    """Number of ledgers that were in the archive already."""


def archive(
    spark: "SparkSession",
    metadata: str,
    path: str,
    ledger_ids: Sequence[int],
    *,
    options: Mapping[str, str] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> ArchiveResult:
    """Copy closed ledgers into files below `path`, on any file system that Spark supports. Skip
    ledgers that are archived already. Call `on_step` with (number done, number of all).

    Raises SparkIoError for an open ledger, ArchiveDamagedError if the written files do not read
    back the same; ledgers archived before stay archived.
    """
    given = {"metadata": metadata, **(options or {})}
    client = client_of(ReadOptions.of({**given, "ledger": "0"}).client)
    there = archived_rows(spark, path)
    ids = list(dict.fromkeys(ledger_ids))
    for info, ledger_id in zip(client.ledger_infos(ids), ids, strict=True):
        if ledger_id in there:
            _check_same(path, ledger_id, there[ledger_id], info)
    wanted = [id_ for id_ in ids if id_ not in there]
    entry_count = payload_bytes = 0
    for start in range(0, len(wanted), LEDGERS_PER_STEP):
        step = wanted[start : start + LEDGERS_PER_STEP]
        infos = list(closed_ledgers(client, step, cannot_be="archived", are="archived"))
        read = given | {"ledgers": ",".join(map(str, step)), "asStored": "true"}
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
    return ArchiveResult(len(wanted), entry_count, payload_bytes, len(ids) - len(wanted))


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes, int]]:
    """Return the rows of a batch of (ledger_id, entry_id, data, crc32c)."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def archived_rows(spark: "SparkSession", path: str) -> dict[int, "Row"]:
    """Return the row of each archived ledger; empty if there is no archive yet."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        rows = spark.read.schema(ARCHIVED_DDL).parquet(f"{path}/{LEDGERS}").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return {}
    return {row.ledger_id: row for row in rows}


def _check_same(path: str, ledger_id: int, noted: "Row", info: LedgerInfo | None) -> None:
    """Check that a ledger is the one that was archived under its id, not one of another cluster."""
    if info is None:
        return  # it was deleted later; the archive keeps it
    if (noted.created_ms, noted.length) != (info.created_ms, info.length or 0):
        raise ArchiveDamagedError(
            f"{path} holds another ledger {ledger_id}, created at {noted.created_ms}, not at "
            f"{info.created_ms}: archive each cluster under a separate path"
        )


def _check(spark: "SparkSession", path: str, infos: Sequence[LedgerInfo]) -> None:
    """Read back the written files of some ledgers. Raises ArchiveDamagedError."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    ids = [int(info.id) for info in infos if _entry_count(info)]
    if not ids:
        return
    columns = stored_entries(spark, path, ids)
    checked = columns.mapInArrow(_check_digests, "ledger_id bigint, entry_id bigint, size bigint")
    archived = {
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
        row, count = archived.get(int(info.id)), _entry_count(info)
        whole = row is not None and (row.entries, row.ids, row.last, row.size) == (
            count,
            count,
            count - 1,
            info.length,
        )
        if count and not whole:
            raise ArchiveDamagedError(
                f"ledger {info.id} has {count} entries of {info.length} bytes, but the files in "
                f"{path} hold {row}: run it again"
            )


def stored_entries(spark: "SparkSession", path: str, ledger_ids: Sequence[int]) -> "DataFrame":
    """Return the archived entries of some ledgers."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    # Spark guesses the type of a column that it reads from directory names.
    ledger_id = F.col("ledger_id").cast("bigint")
    entries = spark.read.parquet(f"{path}/{ENTRIES}").where(ledger_id.isin(list(ledger_ids)))
    return entries.select(ledger_id.alias("ledger_id"), "entry_id", "data", "crc32c")


def _add_digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        digests = pa.array([crc32c(data) for data in batch.column("data").to_pylist()], pa.int64())
        schema = batch.schema.append(pa.field("crc32c", pa.int64()))
        yield pa.RecordBatch.from_arrays([*batch.columns, digests], schema=schema)


def _check_digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = list(rows_of(batch))
        for ledger_id, entry_id, data, digest in rows:
            if crc32c(data) != digest:
                raise ArchiveDamagedError(
                    f"ledger {ledger_id}: the written file has a damaged entry {entry_id}: run "
                    "the archive again, and check the storage of the path"
                )
        sizes = pa.array([len(data) for _, _, data, _ in rows], pa.int64())
        arrays = [batch.column("ledger_id"), batch.column("entry_id"), sizes]
        yield pa.RecordBatch.from_arrays(arrays, names=["ledger_id", "entry_id", "size"])


def _entry_count(info: LedgerInfo) -> int:
    return 0 if info.last_entry_id is None else info.last_entry_id + 1


def _row(info: LedgerInfo) -> tuple[int, int, int, int, int, int, str, int, str, str | None]:
    custom = {
        name: value if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
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
        str(info.digest),
        info.created_ms,
        json.dumps(custom),
        None if info.encryption is None else _encryption_text(info.encryption),
    )


def _encryption_text(encryption: PayloadEncryption) -> str:
    return json.dumps(
        {
            "cipher": str(encryption.cipher),
            "key_id": encryption.key_id,
            "key_token": encryption.key_token.hex(),
            "key_check": encryption.key_check.hex(),
        }
    )


def archived_encryption(text: str) -> PayloadEncryption:
    """Return how the payloads of an archived ledger are encrypted. Raises ArchiveDamagedError."""
    try:
        fields = json.loads(text)
        return PayloadEncryption(
            cipher=Cipher(fields["cipher"]),
            key_id=fields["key_id"],
            key_token=UpdateToken(bytes.fromhex(fields["key_token"])),
            key_check=bytes.fromhex(fields["key_check"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveDamagedError(
            f"the encryption of an archived ledger cannot be read ({error!r}): archive it again"
        ) from error


def _ddl(frame: "DataFrame") -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
