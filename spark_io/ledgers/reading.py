"""Reads of entry ranges inside a Spark task, as Arrow batches.

Leaves finding replicas and checking digests to the ledger client.

Invariants: nothing is left out silently: unreadable entries are an error that names ledger, entries
and bookies, or, with failOnDataLoss=false, a line in the executor's log. Entries of a ledger that
was created again since planning are never returned.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from ledger_client import (
    ChainNotFoundError,
    DecryptionError,
    DigestMismatchError,
    EncryptedLedgerError,
    EncryptionKeyError,
    EncryptionUnavailableError,
    EntryLostError,
    EntryNotFoundError,
    KeyFileError,
    LedgerError,
    LedgerNotFoundError,
)
from ledger_client.sync import LedgerClient, LedgerReader
from spark_io.errors import DataLostError, ReadFailedError, RecreatedError
from spark_io.ledgers.options import KEY_FILE, ReadOptions, keys_to_read
from spark_io.ledgers.rows import RowBatches
from spark_io.ledgers.selecting import require_same_chain
from spark_io.ledgers.splits import EntryRange
from spark_io.worker_client import client_of

PLANNED: Final = "this part of the query was planned"

UNREADABLE: Final = (
    DecryptionError,
    EncryptedLedgerError,
    EncryptionKeyError,
    EncryptionUnavailableError,
    KeyFileError,
)
"""Failures of decryption. They are no loss of data, so no option leaves entries out."""

_log = logging.getLogger(__name__)


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
    for each in ranges:
        try:
            yield from _read_range(client, each, options)
        except (DataLostError, ReadFailedError):
            raise
        except LedgerNotFoundError as error:
            if options.fail_on_data_loss:
                why = f"the ledger was deleted while the query ran ({error})"
                raise DataLostError(each.ledger_id, each.first, each.last, why) from error
            _log_loss(each.ledger_id, each.first, each.last, str(error))
        except UNREADABLE as error:
            text = f"{error.message} (option {KEY_FILE})"
            raise ReadFailedError(each.ledger_id, each.first, each.last, text) from error
        except LedgerError as error:
            text = f"{error.message} (the same task may succeed later)"
            raise ReadFailedError(each.ledger_id, each.first, each.last, text) from error


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


def _read_range(
    client: LedgerClient, wanted: EntryRange, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    password, keys = options.client.password, keys_to_read(options)
    with client.open_ledger(wanted.ledger_id, password=password, encryption=keys) as reader:
        if wanted.creation_token not in (b"", reader.info.creation_token):
            if options.fail_on_data_loss:
                raise RecreatedError("ledger", str(wanted.ledger_id), PLANNED)
            why = "the ledger was deleted, and another one has its id"
            _log_loss(wanted.ledger_id, wanted.first, wanted.last, why)
            return
        rows = RowBatches(
            wanted.ledger_id,
            reader.info.fragments,
            bytes_wanted=options.arrow_batch_bytes,
            include_value=options.include_value,
        )
        at = wanted.first
        while at <= wanted.last:
            try:
                for batch in reader.read(at, wanted.last):
                    yield from rows.add(batch)
                    at = batch.last_entry_id + 1
            except (EntryNotFoundError, EntryLostError, DigestMismatchError) as error:
                yield from rows.finish()
                if not reader.is_closed and reader.last_confirmed < wanted.last:
                    raise  # the bookies that responded know an older LAC than the driver
                lost = at if error.entry_id is None else max(at, error.entry_id)
                if options.fail_on_data_loss:
                    why = f"{error.message} ({_holders(reader, lost)})"
                    raise DataLostError(wanted.ledger_id, lost, wanted.last, why) from error
                end = lost
                if isinstance(error, EntryLostError):
                    end = min(error.lost_last, wanted.last)
                _log_loss(wanted.ledger_id, lost, end, error.message)
                at = end + 1
        yield from rows.finish()


def _holders(reader: LedgerReader, entry_id: int) -> str:
    fragments = reader.info.fragments
    fragment = max(
        (f for f in fragments if f.first_entry_id <= entry_id), key=lambda f: f.first_entry_id
    )
    return f"its fragment is on {', '.join(fragment.ensemble)}"


def _log_loss(ledger_id: int, first: int, last: int, why: str) -> None:
    _log.warning(
        "ledger %d: left out entries %d to %d, %d in all: %s",
        ledger_id,
        first,
        last,
        last - first + 1,
        why,
    )
