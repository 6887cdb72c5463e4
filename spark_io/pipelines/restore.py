"""Restore of archived ledgers into new ones, published in a chain.

Leaves the files to `spark_io.pipelines.archive`.

Invariants: only complete ledgers are published; a ledger that is in the chain already is skipped;
of two concurrent restores into one chain one fails.

Source: Spark design, "Pipelines".
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from crc32c import crc32c

from ledger_client import Encryption, LinkedLedger, PayloadEncryption, Quorum
from spark_io.common_options import ClientOptions
from spark_io.errors import SparkIoError
from spark_io.ledgers.options import WriteOptions, keys_to_write
from spark_io.pipelines.archive import (
    LEDGERS_PER_STEP,
    ArchiveDamagedError,
    archived_encryption,
    archived_rows,
    rows_of,
    stored_entries,
)
from spark_io.workers import client_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

RESTORED_FROM: Final = "quire.restored_from"
"""Name in the custom metadata of a restored ledger, for its old id."""
RESTORED_DDL: Final = (
    "archived_id bigint, ledger_id bigint, created_ms bigint, last_entry_id bigint, length bigint"
)


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

    A ledger keeps its entries with their ids, its custom metadata, and, unless the options differ,
    its quorum and digest (in-sync mode becomes a quorum of all; a keyed ledger needs its password
    in the options). The ciphertext of an encrypted ledger is written as it is, and read with the
    same key. The old id is `quire.restored_from`. Ledgers that are in the chain already are
    skipped, so an interrupted run can be repeated. Raises ArchiveDamagedError, SparkIoError if two
    restores run into one chain.
    """
    given = options or {}
    checked = WriteOptions.of({"metadata": metadata, "chain": chain, **given})
    client = client_of(checked.client)
    handle = client.chain(chain)
    handle.create(exist_ok=True)
    application = f"restore into {chain}"
    number = handle.last_batch(application)  # read before the links, which must not be older
    number = -1 if number is None else number
    done = _restored_ids(checked.client, chain)
    noted = archived_rows(spark, path)
    ids = sorted(dict.fromkeys(noted if ledger_ids is None else ledger_ids))
    unknown = [id_ for id_ in ids if id_ not in noted]
    if unknown:
        raise ArchiveDamagedError(
            f"the archive at {path} does not contain ledgers {unknown}: check the path, or leave "
            "these ledgers out"
        )
    wanted = [id_ for id_ in ids if id_ not in done]
    for start in range(0, len(wanted), LEDGERS_PER_STEP):
        step = wanted[start : start + LEDGERS_PER_STEP]
        how = _HowToWrite(checked, {name.lower() for name in given})
        linked = _write_back(spark, path, how, {id_: noted[id_] for id_ in step})
        number += 1
        published = handle.publish(linked, application=application, batch=number)
        if not published.is_new:
            handle.withdraw([ledger.ledger_id for ledger in linked], since_index=0)
            raise SparkIoError(
                f"another restore into chain {chain!r} runs at the same time: run this again"
            )
        done |= {id_: new.ledger_id for id_, new in zip(step, linked, strict=True)}
    return {id_: done[id_] for id_ in ids}


@dataclass(frozen=True, slots=True)
class _HowToWrite:
    """Properties of restored ledgers: those of the options, or else the old ones."""

    options: WriteOptions
    given: set[str]

    def quorum_of(self, noted: "NotedLedger") -> Quorum:
        """Return the quorum of a restored ledger."""
        if self.given & {"ensemble", "writequorum", "ackquorum", "insync", "mininsync"}:
            return self.options.quorum
        return Quorum(noted.ensemble, noted.write_quorum, noted.ack_quorum)

    def digest_of(self, noted: "NotedLedger") -> str:
        """Return the digest of a restored ledger; a keyed ledger needs its password again."""
        return self.options.digest if "digest" in self.given else noted.digest

    def encryption_of(self, noted: "NotedLedger") -> Encryption | PayloadEncryption | None:
        """Return how the archived payloads are encrypted; plain ones get the key of the options."""
        if noted.encryption is not None:
            return archived_encryption(noted.encryption)
        return keys_to_write(self.options)


@dataclass(frozen=True, slots=True)
class NotedLedger:
    """Archived facts about a ledger, as passed to tasks."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    digest: str
    metadata: str
    encryption: str | None

    @classmethod
    def of(cls, row: "Row") -> "NotedLedger":
        """Return the facts that a task needs from a row."""
        return cls(
            row.ensemble,
            row.write_quorum,
            row.ack_quorum,
            row.digest,
            row.metadata,
            row.encryption,
        )


def _write_back(
    spark: "SparkSession", path: str, how: _HowToWrite, noted: Mapping[int, "Row"]
) -> list[LinkedLedger]:
    """Write some archived ledgers into new ones; return the new ones in the given order."""
    full = {id_: row for id_, row in noted.items() if row.entry_count}
    facts = {id_: NotedLedger.of(row) for id_, row in full.items()}
    written: dict[int, LinkedLedger] = {}
    if full:
        sorted_rows = (
            stored_entries(spark, path, list(full))
            .repartition(len(full), "ledger_id")
            .sortWithinPartitions("ledger_id", "entry_id")
        )
        for row in sorted_rows.mapInArrow(
            partial(_restore_task, how, facts), RESTORED_DDL
        ).collect():
            values = (row.ledger_id, row.created_ms, row.last_entry_id, row.length)
            written[row.archived_id] = LinkedLedger(*values)
    for id_, row in noted.items():
        if not row.entry_count:
            written[id_] = _write_ledger(how, id_, NotedLedger.of(row), ())
        last = written[id_].last_entry_id if id_ in written else -1
        if last is None or last + 1 != row.entry_count:
            raise ArchiveDamagedError(
                f"ledger {id_} had {row.entry_count} entries when it was archived, but {path} "
                f"has {-1 if last is None else last + 1}: no ledger of this step was published. "
                f"Restore the others with ledger_ids, or archive ledger {id_} again"
            )
    return [written[id_] for id_ in noted]


def _restored_ids(options: ClientOptions, chain: str) -> dict[int, int]:
    """Return the restored ledgers of a chain: old id -> new id."""
    client = client_of(options)
    handle = client.chain(chain)
    info = handle.info()
    links = handle.links(info.first_index, info.next_index)
    ids = [ledger.ledger_id for _, link in links if link is not None for ledger in link.ledgers]
    restored: dict[int, int] = {}
    for ledger_info in client.ledger_infos(ids):
        old = None if ledger_info is None else ledger_info.metadata.get(RESTORED_FROM)
        if ledger_info is not None and isinstance(old, str):
            restored[int(old)] = int(ledger_info.id)
    return restored


def _restore_task(
    how: _HowToWrite, noted: Mapping[int, NotedLedger], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the ledgers of one task, one after the other; their rows come sorted."""
    rows = _Ledgers(batches)
    for archived_id in rows:
        made = _write_ledger(how, archived_id, noted[archived_id], rows.payloads(archived_id))
        values = [archived_id, made.ledger_id, made.created_ms, made.last_entry_id, made.length]
        names = ("archived_id", "ledger_id", "created_ms", "last_entry_id", "length")
        arrays = [pa.array([value], pa.int64()) for value in values]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _write_ledger(
    how: _HowToWrite, archived_id: int, noted: NotedLedger, payloads: Iterable[bytes]
) -> LinkedLedger:
    client = client_of(how.options.client)
    custom = client.chain(how.options.chain).custom_metadata
    with client.create_ledger(
        how.quorum_of(noted),
        digest=how.digest_of(noted),
        password=how.options.client.password,
        metadata={**_custom_of(noted.metadata), **custom, RESTORED_FROM: str(archived_id)},
        encryption=how.encryption_of(noted),
    ) as writer:
        writer.append_many(payloads)
    info = writer.info
    return LinkedLedger(info.id, info.created_ms, info.last_entry_id, info.length)


def _custom_of(stored: str) -> dict[str, str | bytes]:
    """Parse custom metadata: each value is a text, or an object with bytes in Base64."""
    return {
        name: value if isinstance(value, str) else base64.b64decode(value["base64"])
        for name, value in json.loads(stored).items()
    }


class _Ledgers:
    """Sorted rows of several ledgers, ledger by ledger, with each entry checked."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._rows = (row for batch in batches for row in rows_of(batch))
        self._next = next(self._rows, None)

    def __iter__(self) -> Iterator[int]:
        while self._next is not None:
            yield self._next[0]

    def payloads(self, ledger_id: int) -> Iterator[bytes]:
        """Yield the payloads of one ledger. Raises ArchiveDamagedError for a gap or a damaged
        entry.
        """
        expected = 0
        while self._next is not None and self._next[0] == ledger_id:
            _, entry_id, data, digest = self._next
            if entry_id != expected:
                text = (
                    f"ledger {ledger_id}: entry {expected} is missing in the archive. Archive the "
                    "ledger again if it still exists"
                )
                raise ArchiveDamagedError(text)
            if crc32c(data) != digest:
                text = (
                    f"ledger {ledger_id}: entry {entry_id} is damaged in the archive. Archive the "
                    "ledger again if it still exists"
                )
                raise ArchiveDamagedError(text)
            yield data
            expected += 1
            self._next = next(self._rows, None)
