"""The next ledger of a log, created before the current one is full.

Leaves the time of creation and of the change-over to its owner, and the list of ledgers to
`ledger_list`.

Invariant: a ledger that nobody takes is deleted.

Source: topics design, "What a takeover does" (rolling).
"""

import asyncio
import logging

from broker_layer.log.ledger_closing import RETRY_MAX_S
from broker_layer.log.ledger_list import LedgerList
from ledger_client import Quorum
from ledger_client.errors import LedgerError
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError

log = logging.getLogger(__name__)


class NextLedger:
    """At most one ledger that is created and not listed yet."""

    def __init__(self, ledger_list: LedgerList) -> None:
        self._ledger_list = ledger_list
        self._writer: LedgerWriter | None = None
        self._quorum: Quorum | None = None
        """The quorum that `_writer` was created with; it may have fewer replicas now."""

    def is_ready(self, quorum: Quorum) -> bool:
        """Return whether there is a usable ledger of this quorum; abandon one that is not."""
        writer = self._writer
        if writer is not None and not (writer.is_usable and self._quorum == quorum):
            self.abandon()
        return self._writer is not None

    async def create(self, quorum: Quorum) -> None:
        """Create the ledger. If that fails now, wait before the next attempt: RETRY_MAX_S."""
        self._quorum = quorum
        try:
            self._writer = await self._ledger_list.create_writer(quorum)
        except (LedgerError, MetadataError) as error:
            log.info("no next ledger can be created yet, the current one grows: %s", error)
            await asyncio.sleep(RETRY_MAX_S)

    def take(self) -> LedgerWriter | None:
        """Return the ledger, which is the caller's from now on; None if there is none."""
        writer, self._writer = self._writer, None
        return writer

    def abandon(self) -> None:
        """Delete the ledger in the background, if there is one."""
        if (writer := self.take()) is not None:
            self._ledger_list.end_later(writer, is_listed=False)
