"""Watch of one ledger's metadata by its writer, which learns that another client ended it.

Leaves the reaction to the append protocol, and the rate of reads to `metadata_reads`.

No bookie has to report it. A deletion may be over before a bookie has the ledger. In in-sync mode,
an unclean recovery closes the ledger without the members that the writer uses, and while appends
are refused nothing is sent.

Invariant: nothing here delays an append; while the metadata service is away, nothing is learned.

Source: protocol rules 1.4, 4.8 and 11.7.
"""

from typing import Final

from ledger_client.errors import LedgerNotFoundError
from ledger_client.protocol import append_events as e
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.writer_services import WriterServices
from metadata.errors import MetadataError, NodeNotFoundError

READ_AGAIN_S: Final = 2.0
"""Maximum time after a failed read until the next one; half of it is random."""


class StoredWatch:
    """Watch of the ledger of one writer, from its start to `close`."""

    def __init__(self, shell: AppendShell, services: WriterServices) -> None:
        self._shell = shell
        self._services = services
        self._ledger_id = shell.protocol.metadata.ledger_id
        self._is_closed = False
        self._cancel = services.ledgers.watch(self._ledger_id, self._want_read)
        self._want_read()  # the ledger may have changed before the watch was set

    def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        self._cancel()
        self._services.metadata_reads.cancel(self._ledger_id)

    def _want_read(self) -> None:
        self._services.metadata_reads.want(self._ledger_id, self._read)

    async def _read(self) -> None:
        try:
            stored = await self._services.ledgers.get(self._ledger_id, fresh=True)
        except NodeNotFoundError:
            text = "another client deleted it: continue in a new ledger"
            error = LedgerNotFoundError(text, ledger_id=self._ledger_id)
            self._shell.dispatch(e.WriterFailed(error))
        except MetadataError:
            if not self._is_closed and not self._shell.protocol.has_ended:
                reads = self._services.metadata_reads
                reads.want(self._ledger_id, self._read, READ_AGAIN_S)
        else:
            self._shell.dispatch(e.MetadataSeen(*stored))
