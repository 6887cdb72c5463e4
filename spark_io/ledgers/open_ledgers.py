"""Open ledgers with their LAC, kept in memory on the driver, and ends that were recorded in them.

Leaves which ledgers a query reads to `selecting` and `stream_ledgers`, and reading to `reading`.

The bookies that answer may know an older LAC than those that answered before, for example after a
restart of the driver. So an end that a checkpoint or an option names may be beyond the present LAC.
Then it is waited for. The LAC of an open ledger is never taken for its end.

Invariants: only the first call for a ledger, and the wait for an end, ask bookies; a range up to a
recorded end is that range, or an error, or, with failOnDataLoss=false and a closed ledger that ends
before it, a shorter one with a line in the log.

Source: Spark design, "Reading"; protocol rule 8.5.
"""

import logging
from dataclasses import replace
from typing import Final

from ledger_client import AS_STORED, LedgerError, LedgerNotFoundError
from ledger_client.sync import LedgerClient, LedgerReader
from metadata.ids import ENTRY_ID_MAX
from spark_io.errors import DataLostError, ReadFailedError
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.splits import EntryRange, KnownLedger
from spark_io.ledgers.unreadable import log_loss

SEEN_WAIT_S: Final = 30.0
"""Maximum time to wait for a recorded end of a ledger, in seconds."""

_log = logging.getLogger(__name__)


class OpenLedgers:
    """Open ledgers of one query, updated in the background until they are closed or deleted."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        self._client = client
        self._password = options.client.password
        self._fail_on_data_loss = options.fail_on_data_loss
        self._readers: dict[int, LedgerReader] = {}

    def now(self, known: KnownLedger) -> KnownLedger:
        """Return a ledger as it is now; query bookies only at the first call for an open ledger."""
        if known.is_closed:
            return known
        reader = self._reader_of(known)
        if reader.follow_failure is not None:
            return self._gone(known, reader.follow_failure)
        last = reader.info.last_entry_id  # set in the metadata of a closed ledger
        if last is None:
            return replace(known, end=max(known.end, reader.last_confirmed + 1))
        self._readers.pop(known.ledger_id).close()
        return replace(known, end=last + 1, is_closed=True)

    def range_to(self, known: KnownLedger, first: int, end: int) -> EntryRange:
        """Return the range from an entry up to, not including, a recorded end; wait until the end
        is confirmed. Raises DataLostError, ReadFailedError, LedgerError.
        """
        if first < end and known.end < end:
            known = self._once_known(known, end)
            if known.end < end:
                lost, why = max(first, known.end), f"the ledger ends before entry {known.end}"
                if self._fail_on_data_loss:
                    raise DataLostError(known.ledger_id, lost, end - 1, why)
                log_loss(known.ledger_id, lost, end - 1, why)
                end = known.end
        return known.range_from(first, end)

    def closed(self, known: KnownLedger) -> KnownLedger:
        """Return a ledger that a recorded position is behind, and which was closed then; wait until
        its end is known here too. Raises ReadFailedError, LedgerError.
        """
        return self._once_known(known, None)

    def close(self) -> None:
        """Stop following."""
        for ledger_id in list(self._readers):
            self._readers.pop(ledger_id).close()

    def _once_known(self, known: KnownLedger, end: int | None) -> KnownLedger:
        """Return a ledger once it is closed, or confirmed up to `end`."""
        known = self.now(known)
        if not _is_known(known, end):
            try:
                beyond = ENTRY_ID_MAX if end is None else end - 2
                self._reader_of(known).wait_confirmed(beyond, timeout=SEEN_WAIT_S)
            except LedgerNotFoundError as error:
                return self._gone(known, error)
            known = self.now(known)
        if _is_known(known, end):
            return known
        wanted = "is not closed yet" if end is None else f"is not confirmed before entry {end} yet"
        text = (
            f"the recorded position shows that there are more entries, but the ledger {wanted} for "
            f"the bookies that answered in {SEEN_WAIT_S:.0f} s. Nothing is left out: start the "
            "query again when all bookies run. If the ledger's writer is gone, `quire ledger "
            f"recover {known.ledger_id}` confirms what it wrote"
        )
        raise ReadFailedError(known.ledger_id, known.end, (end or known.end + 1) - 1, text)

    def _reader_of(self, known: KnownLedger) -> LedgerReader:
        reader = self._readers.get(known.ledger_id)
        if reader is None:
            reader = self._client.open_ledger(
                known.ledger_id, password=self._password, encryption=AS_STORED
            )
            try:
                reader.learn_last_confirmed()
            except LedgerError:
                reader.close()
                raise
            reader.follow()
            self._readers[known.ledger_id] = reader
        return reader

    def _gone(self, known: KnownLedger, why: LedgerError) -> KnownLedger:
        """Raise, or end a ledger at its last known end, once it cannot be followed any longer."""
        if self._fail_on_data_loss or not isinstance(why, LedgerNotFoundError):
            raise why
        _log.warning(
            "ledger %d: left out the entries after entry %d: %s",
            known.ledger_id,
            known.end - 1,
            why,
        )
        self._readers.pop(known.ledger_id).close()
        return replace(known, is_closed=True)


def _is_known(known: KnownLedger, end: int | None) -> bool:
    return known.is_closed or (end is not None and known.end >= end)
