"""Failures to read planned entries: an error for Spark, or entries left out with a line in the log.

Leaves reading to `reading`.

Invariants: entries are left out only with failOnDataLoss=false, and only if they are lost: never
because bookies do not answer, or for want of a key.

Source: Spark design, "Reading".
"""

import logging
from dataclasses import replace
from typing import Final

from ledger_client import (
    DecryptionError,
    DigestMismatchError,
    EncryptedLedgerError,
    EncryptionKeyError,
    EncryptionUnavailableError,
    EntryLostError,
    EntryNotFoundError,
    KeyFileError,
    LedgerError,
    LedgerInfo,
    LedgerNotFoundError,
    RangePart,
    UnauthorizedError,
)
from spark_io.errors import DataLostError, ReadFailedError, RecreatedError
from spark_io.ledgers.options import KEY_FILE, ReadOptions
from spark_io.ledgers.splits import EntryRange

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
        (each for each in info.fragments if each.first_entry_id <= entry_id),
        key=lambda each: each.first_entry_id,
    )
    return f"its fragment is on {', '.join(fragment.ensemble)}"
