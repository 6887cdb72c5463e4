"""A reader's view of one ledger, kept up to date: its metadata and its LAC.

Leaves requests for the LAC to `tailing.py`, which reports it here. The LAC of a writer of the same
client is asked of the writer itself, whenever it is needed.

Invariants: neither the metadata's version nor the LAC ever goes back (rule 8.5); there is one watch
while the ledger can change, and none once it is closed; a change before the watch was set is read
too; a lost session delays updates but never causes an error.

Source: protocol rules 8.1, 8.4, 8.5; metadata design, "Watches".
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Protocol

from ledger_client.errors import LedgerError, LedgerNotFoundError, MetadataUnavailableError
from ledger_client.metadata_failures import translate
from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.callbacks import Callbacks
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.interface import Cancel


class OwnWriter(Protocol):
    """The ledger's writer, in the same client."""

    @property
    def last_confirmed(self) -> EntryId:
        """Its LAC, also after its end."""


def _no_writer() -> OwnWriter | None:
    return None


class FollowedLedger:
    """One ledger, as seen by an open reader."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: Version,
        ledgers: LedgerStore,
        rng: Random,
        find_writer: Callable[[], OwnWriter | None] = _no_writer,
    ) -> None:
        """Create the view; `find_writer` returns the ledger's writer if it is of this client."""
        self.metadata = metadata
        self._find_writer = find_writer
        self._writer = find_writer()
        self._last_confirmed = _confirmed_by(metadata)
        self.is_deleted = False
        self.is_lac_told = False
        """Whether bookies told a LAC: before, the ledger may have more entries than the metadata
        proves.
        """
        self.version = version
        self._ledgers = ledgers
        self._rng = rng
        self._callbacks = Callbacks[()]()
        self._tasks = BackgroundTasks()
        self._cancel_watch: Cancel | None = None
        self._rereads_wanted = 0
        self._has_reread = False

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger's id."""
        return self.metadata.ledger_id

    @property
    def last_confirmed(self) -> EntryId:
        """The highest LAC that is known."""
        if not self.is_closed:
            self._writer = self._writer or self._find_writer()
            if self._writer is not None:  # kept after its end: the close may be learned later
                self._last_confirmed = max(self._last_confirmed, self._writer.last_confirmed)
                self.is_lac_told = True
        return self._last_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the last entry is final."""
        return self.metadata.state is LedgerState.CLOSED

    def start(self) -> None:
        """Follow the metadata, unless it is final."""
        if not self.is_closed:
            self._cancel_watch = self._ledgers.watch(self.ledger_id, self._on_watch)
            self._on_watch()  # the ledger may have changed before the watch was set

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back whenever the metadata or the LAC changed, or the ledger is gone."""
        return self._callbacks.add(callback)

    def advance_lac(self, lac: EntryId) -> None:
        """Record a LAC that a bookie reported; an older one changes nothing."""
        if not self.is_closed and lac > self.last_confirmed:
            self._last_confirmed = lac
            self.is_lac_told = True
            self._callbacks.notify()

    async def refresh(self, *, fresh: bool = False, agreed: bool = False) -> None:
        """Read the metadata now, `fresh` and `agreed` as for `MetadataStore.get`. Raises
        LedgerNotFoundError, MetadataUnavailableError, ClientClosedError.
        """
        try:
            self._adopt(*await self._ledgers.get(self.ledger_id, fresh=fresh, agreed=agreed))
        except NodeNotFoundError:
            self._note_deleted()
            raise self.deleted_error() from None
        except MetadataError as error:
            raise translate(error, self.ledger_id) from error

    async def refresh_if_possible(self, timeout_s: float) -> bool:
        """Read the newest metadata, and return whether the service answered in time; if it did not,
        keep the metadata last read. Raises LedgerNotFoundError, ClientClosedError.
        """
        with suppress(MetadataUnavailableError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.refresh(fresh=True)
                return True
        return False

    def deleted_error(self) -> LedgerError:
        """Return the error for a read of a deleted ledger."""
        text = "it was deleted with its entries: close this reader"
        return LedgerNotFoundError(text, ledger_id=self.ledger_id)

    async def aclose(self) -> None:
        """Stop following."""
        self._stop_watching()
        await self._tasks.aclose()

    def _on_watch(self) -> None:
        self._rereads_wanted += 1
        if self._rereads_wanted == 1:
            self._tasks.start(self._reread())

    async def _reread(self) -> None:
        backoff = Backoff(self._rng)
        while self._rereads_wanted and not self.is_deleted:
            wanted = self._rereads_wanted
            try:
                # No watch promises that an ordinary read shows what changed before it was set.
                await self.refresh(fresh=not self._has_reread)
                self._has_reread = True
            except MetadataUnavailableError:
                await asyncio.sleep(backoff.next_s())
                continue
            except LedgerError:
                break  # the client is closed, or the value cannot be read: the next call reports it
            self._rereads_wanted -= wanted
        self._rereads_wanted = 0

    def _adopt(self, metadata: LedgerMetadata, version: Version) -> None:
        if version <= self.version:
            return
        self.metadata, self.version = metadata, version
        self._last_confirmed = max(self._last_confirmed, _confirmed_by(metadata))
        if self.is_closed:
            self._stop_watching()
        self._callbacks.notify()

    def _note_deleted(self) -> None:
        self.is_deleted = True
        self._stop_watching()
        self._callbacks.notify()

    def _stop_watching(self) -> None:
        if self._cancel_watch is not None:
            self._cancel_watch()
            self._cancel_watch = None


def _confirmed_by(metadata: LedgerMetadata) -> EntryId:
    """Return the LAC that the metadata alone proves: a fragment begins after the
    confirmed entries.
    """
    if metadata.last_entry_id is not None:
        return metadata.last_entry_id
    return EntryId(metadata.last_fragment.first_entry_id - 1)
