"""Reads of ranges of ledgers inside a Spark task, as Arrow batches.

Leaves opening ledgers, reading ahead, finding replicas and checking digests to the ledger client.

Without payloads, the ids follow from the planned range, and the numbers of fragments from the
ledger's metadata. So no bookie is asked, and no key of an encrypted ledger is needed. A damaged
replica is not noticed; all other failures are the same as those of a read of payloads.

Invariants: nothing is left out silently: unreadable entries are an error that names ledger, entries
and bookies, or, with failOnDataLoss=false, a line in the executor's log. That is so only for lost
entries: never because bookies do not answer, or for want of a key. Entries of a ledger that was
created again since planning are never returned.

Source: Spark design, "Reading"; protocol rule 8.6.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from ledger_client import (
    ChainNotFoundError,
    DecryptionError,
    DigestMismatchError,
    EncryptedLedgerError,
    EncryptionKeyError,
    EncryptionUnavailableError,
    EntryBatch,
    EntryLostError,
    EntryNotFoundError,
    KeyFileError,
    LedgerError,
    LedgerInfo,
    LedgerNotFoundError,
    LedgerRange,
    RangePart,
    UnauthorizedError,
)
from ledger_client.sync import LedgerClient
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.lost_entries import next_range, range_of
from spark_io.errors import DataLostError, ReadFailedError, RecreatedError
from spark_io.ledgers.options import KEY_FILE, ReadOptions, keys_to_read
from spark_io.ledgers.rows import Origin, RowBatches
from spark_io.ledgers.selecting import infos_of, require_same_chain
from spark_io.ranges import EntryRange
from spark_io.workers import client_of

PLANNED: Final = "this part of the query was planned"
UNDECRYPTED: Final = (
    DecryptionError,
    EncryptedLedgerError,
    EncryptionKeyError,
    EncryptionUnavailableError,
    KeyFileError,
)
"""Failures of decryption. They are no loss of data, so no option leaves entries out."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive entries of a ledger that can be read."""

    info: LedgerInfo
    link: int | None
    batch: EntryBatch


@dataclass(frozen=True, slots=True)
class EntryIds:
    """Consecutive entries of a ledger that were confirmed and are not lost."""

    info: LedgerInfo
    link: int | None
    first: int
    last: int


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
        for entry_id in entry_ids(client, ranges, options):
            info, origin = entry_id.info, Origin(entry_id.link, entry_id.info.created_ms)
            yield from rows.add_ids(info.fragments, info.id, entry_id.first, entry_id.last, origin)
    yield from rows.finish()


def _pieces(
    client: LedgerClient, ranges: Sequence[EntryRange], options: ReadOptions
) -> Iterator[Piece]:
    """Yield what can be read of the ranges, in order; the ledgers after the current one are opened
    and read meanwhile.
    """
    at = [range_.first for range_ in ranges]
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
    wanted = [LedgerRange(part.ledger_id, part.first, part.last, part.size) for part in ranges]
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


def entry_ids(
    client: LedgerClient, ranges: Sequence[EntryRange], options: ReadOptions
) -> Iterator[EntryIds]:
    """Yield the entries of ranges, in order. Raises DataLostError, ReadFailedError,
    RecreatedError.
    """
    infos = _infos(client, ranges)
    for wanted in ranges:
        try:
            info = next(infos) or client.ledger_info(wanted.ledger_id)  # the newest metadata
        except LedgerNotFoundError as error:
            failed = RangePart(0, None, None, error)
            rest_after_failure(failed, wanted, wanted.first, options)
            continue
        except LedgerError as error:
            raise unreadable(wanted, error) from error
        if is_planned(wanted, info, options):
            yield from _not_lost(wanted, info, options)


def _infos(client: LedgerClient, ranges: Sequence[EntryRange]) -> Iterator[LedgerInfo | None]:
    return infos_of(client, [range_.ledger_id for range_ in ranges])


def _not_lost(wanted: EntryRange, info: LedgerInfo, options: ReadOptions) -> Iterator[EntryIds]:
    ledger_id, rest = LedgerId(wanted.ledger_id), wanted
    if info.last_entry_id is not None and info.last_entry_id < wanted.last:
        behind = EntryNotFoundError("", ledger_id=ledger_id, entry_id=EntryId(wanted.last))
        rest = rest_after_failure(RangePart(0, info, None, behind), wanted, wanted.first, options)
    while rest.count > 0:
        at = rest.first
        lost = range_of(info.lost, at)
        if lost is not None:
            error = EntryLostError(ledger_id=ledger_id, entry_id=EntryId(at), lost=lost)
            rest = rest_after_failure(RangePart(0, info, None, error), rest, at, options)
            continue
        following = next_range(info.lost, at)
        end = rest.last if following is None else min(following.first_entry_id - 1, rest.last)
        yield EntryIds(info, wanted.link, at, end)
        rest = replace(rest, first=end + 1)


def rest_after_failure(
    part: RangePart, wanted: EntryRange, at: int, options: ReadOptions
) -> EntryRange:
    """Return what is left to read of a range, perhaps nothing, after a failure to read entry `at`
    of it and lost entries were logged. Raises DataLostError, ReadFailedError.
    """
    error, ledger_id = part.failure, wanted.ledger_id
    assert error is not None, "the part has a failure"
    if isinstance(error, LedgerNotFoundError):
        if options.fail_on_data_loss:
            why = f"the ledger was deleted while the query ran ({error})"
            raise DataLostError(ledger_id, wanted.first, wanted.last, why) from error
        log_loss(ledger_id, at, wanted.last, str(error))
        return replace(wanted, first=wanted.last + 1)
    last = None if part.info is None else part.info.last_entry_id
    missed = error.entry_id if isinstance(error, EntryNotFoundError | EntryLostError) else None
    if missed is not None and last is not None and last < missed:
        lost, why = max(at, last + 1), f"the ledger ends before entry {last + 1}"
        if options.fail_on_data_loss:
            raise DataLostError(ledger_id, lost, wanted.last, why) from error
        log_loss(ledger_id, lost, wanted.last, why)
        return replace(wanted, first=at, last=lost - 1)
    is_closed = last is not None
    # The bookies that responded may know an older LAC than the driver: then nothing is lost.
    is_visible = is_closed or part.last_confirmed >= wanted.last
    if isinstance(error, EntryNotFoundError | EntryLostError | DigestMismatchError) and is_visible:
        assert part.info is not None, "an entry is missed in an open ledger"
        lost = at if error.entry_id is None else max(at, error.entry_id)
        if options.fail_on_data_loss:
            why = f"{error.message} ({_holders(part.info, lost)})"
            raise DataLostError(ledger_id, lost, wanted.last, why) from error
        end = min(error.lost_last, wanted.last) if isinstance(error, EntryLostError) else lost
        log_loss(ledger_id, lost, end, error.message)
        return replace(wanted, first=end + 1)
    raise unreadable(wanted, error) from error


def unreadable(wanted: EntryRange, error: LedgerError) -> ReadFailedError:
    """Return the error for entries that exist and cannot be read now."""
    hint = "the same task may succeed later"
    if isinstance(error, UNDECRYPTED):
        hint = f"option {KEY_FILE}"
    elif isinstance(error, UnauthorizedError):
        hint = "option password or passwordFile"
    text = f"{error.message} ({hint})"
    return ReadFailedError(wanted.ledger_id, wanted.first, wanted.last, text)


def is_planned(wanted: EntryRange, info: LedgerInfo, options: ReadOptions) -> bool:
    """Return whether a ledger is the planned one; another one with its id is left out if data loss
    is allowed. Raises RecreatedError.
    """
    if wanted.creation_token in (b"", info.creation_token):
        return True
    if options.fail_on_data_loss:
        raise RecreatedError("ledger", str(wanted.ledger_id), PLANNED)
    why = "the ledger was deleted, and another one has its id"
    log_loss(wanted.ledger_id, wanted.first, wanted.last, why)
    return False


def log_loss(ledger_id: int, first: int, last: int, why: str) -> None:
    """Log that entries are left out."""
    _log.warning(
        "ledger %d: left out entries %d to %d, %d in all: %s",
        ledger_id,
        first,
        last,
        last - first + 1,
        why,
    )


def _holders(info: LedgerInfo, entry_id: int) -> str:
    fragment = max(
        (part for part in info.fragments if part.first_entry_id <= entry_id),
        key=lambda part: part.first_entry_id,
    )
    return f"its fragment is on {', '.join(fragment.ensemble)}"
