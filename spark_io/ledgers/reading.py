"""Reads of entry ranges inside a Spark task, as Arrow batches.

Leaves opening ledgers, reading ahead, finding replicas and checking digests to the ledger client,
and failures to `unreadable`.

Invariants: nothing is left out silently: unreadable entries are an error that names ledger, entries
and bookies, or, with failOnDataLoss=false, a line in the executor's log. Entries of a ledger that
was created again since planning are never returned.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ledger_client import (
    ChainNotFoundError,
    EntryBatch,
    LedgerError,
    LedgerInfo,
    LedgerRange,
    RangePart,
)
from ledger_client.sync import LedgerClient
from spark_io.errors import RecreatedError
from spark_io.ledgers.chain_links import require_same_chain
from spark_io.ledgers.ids_only import entry_ids
from spark_io.ledgers.options import ReadOptions, keys_to_read
from spark_io.ledgers.rows import Origin, RowBatches
from spark_io.ledgers.splits import EntryRange
from spark_io.ledgers.unreadable import PLANNED, is_planned, rest_after_failure, unreadable
from spark_io.worker_client import client_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive entries of a ledger that can be read."""

    info: LedgerInfo
    link: int | None
    batch: EntryBatch


def read_ranges(
    ranges: Sequence[EntryRange], options: ReadOptions, chain_token: bytes | None
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of all ranges, in order. `chain_token` is the identity of the chain that
    linked the ledgers when they were planned. Raises DataLostError, ReadFailedError,
    RecreatedError.
    """
    client = client_of(options.client)
    if ranges and chain_token is not None:
        _compare_chain(client, options, chain_token)
    rows = RowBatches(
        bytes_wanted=options.arrow_batch_bytes,
        include_value=options.include_value,
        include_link=options.include_link,
    )
    if options.include_value:
        for piece in _pieces(client, ranges, options):
            origin = Origin(piece.link, piece.info.created_ms)
            yield from rows.add(piece.info.fragments, piece.batch, origin)
    else:
        for each in entry_ids(client, ranges, options):
            info, origin = each.info, Origin(each.link, each.info.created_ms)
            yield from rows.add_ids(info.fragments, info.id, each.first, each.last, origin)
    yield from rows.finish()


def _pieces(
    client: LedgerClient, ranges: Sequence[EntryRange], options: ReadOptions
) -> Iterator[Piece]:
    """Yield what can be read of the ranges, in order; the ledgers after the current one are opened
    and read meanwhile.
    """
    at = [each.first for each in ranges]
    recreated = -1
    for part in _parts(client, ranges, options):
        wanted = ranges[part.index]
        if part.index == recreated:
            continue
        if part.info is not None and not is_planned(wanted, part.info, options):
            recreated = part.index
            continue
        if part.batch is not None and part.info is not None:
            at[part.index] = part.batch.last_entry_id + 1
            yield Piece(part.info, wanted.link, part.batch)
            continue
        yield from _after(client, part, wanted, at[part.index], options)


def _after(
    client: LedgerClient, failed: RangePart, wanted: EntryRange, at: int, options: ReadOptions
) -> Iterator[Piece]:
    """Yield what can be read of a range after a failure to read entry `at`; others may follow."""
    failure: RangePart | None = failed
    while failure is not None:
        wanted = rest_after_failure(failure, wanted, at, options)
        if wanted.count <= 0:
            return
        at, failure = wanted.first, None
        for part in _parts(client, [wanted], options):
            if part.info is not None and not is_planned(wanted, part.info, options):
                return
            if part.batch is not None and part.info is not None:
                at = part.batch.last_entry_id + 1
                yield Piece(part.info, wanted.link, part.batch)
            else:
                failure = part


def _parts(
    client: LedgerClient, ranges: Sequence[EntryRange], options: ReadOptions
) -> Iterator[RangePart]:
    """Yield what the client reads of the ranges. Raises ReadFailedError if it can read nothing."""
    wanted = [LedgerRange(each.ledger_id, each.first, each.last, each.size) for each in ranges]
    try:
        chunks = client.read_ranges(
            wanted,
            password=options.client.password,
            encryption=keys_to_read(options),
            chunk_bytes=options.arrow_batch_bytes,
        )
        for chunk in chunks:
            yield from chunk
    except LedgerError as error:
        raise unreadable(ranges[0], error) from error


def _compare_chain(client: LedgerClient, options: ReadOptions, token: bytes) -> None:
    """Compare the present chain with the planned one. Raises RecreatedError.

    Planned ledgers of a chain that was deleted may still exist, so they are read.
    """
    try:
        require_same_chain(client, options.selection.chain, token, PLANNED)
    except ChainNotFoundError:
        return
    except RecreatedError:
        if options.fail_on_data_loss:
            raise
        name = options.selection.chain
        _log.warning(
            "chain %r was created again: the planned ledgers of the old one are read", name
        )
