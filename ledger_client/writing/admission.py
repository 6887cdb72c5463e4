"""Admission of entries of one writer: ids, and batches of the entries of one loop iteration.

Leaves waiting for room to the callers, confirming to `confirmations`, and sending to
`append_shell`.

Invariants: entries are sent in the order of their ids; an entry that got an id is in the outbox
after the flush, or the writer has ended, so that no other entry gets the id.

Source: api design, "Client".
"""

import asyncio

from ledger_client.errors import LedgerClosedError
from ledger_client.next_tick import NextTick
from ledger_client.protocol.append_errors import not_enough_in_sync
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.batcher import BatchLimits, cut_batches
from ledger_client.writing.window import AppendWindow
from ledger_client.writing.writer_watch import WriterWatch
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec


class Admission:
    """Gives entries their ids, in order, and sends them; every call is synchronous."""

    def __init__(
        self,
        shell: AppendShell,
        watch: WriterWatch,
        limits: BatchLimits,
        next_tick: NextTick,
        ledger_id: LedgerId,
    ) -> None:
        self.limits = limits
        """Size limits of batches and entries."""
        self.ledger_id = ledger_id
        """Id of the ledger, for errors."""
        self.is_closing = False
        """Whether the writer admits nothing any more, because it is being closed."""
        self._shell = shell
        self._watch = watch
        self._next_tick = next_tick
        self._gathered: list[bytes] = []

    @property
    def last_pushed(self) -> EntryId:
        """The last assigned entry id; -1 before the first."""
        return EntryId(self._shell.outbox.lap + len(self._gathered))

    @property
    def next_entry_id(self) -> EntryId:
        """The id that the next entry will get."""
        return EntryId(self.last_pushed + 1)

    @property
    def quorum(self) -> QuorumSpec:
        """Replication of the ledger, which defines where stripes end."""
        return self._shell.protocol.metadata.quorum

    @property
    def window(self) -> AppendWindow:
        """Limit of pending appends."""
        return self._shell.window

    def push_entry(self, payload: bytes, payload_bytes: int) -> EntryId:
        """Assign an id to one entry, sent with the others of this loop iteration; return the id.
        The caller knows that the window has room.
        """
        self.require_open()
        if not self._gathered:
            self._next_tick.soon(self.flush)
        self._gathered.append(payload)
        self._shell.window.take(payload_bytes, 1)
        return self.last_pushed

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        """Admit and send one complete batch (the caller holds the turn and has room); return its
        first id. Raises the error that ended the writer if that fails.
        """
        self.flush()
        self.require_open()
        shell = self._shell
        first = EntryId(shell.outbox.lap + 1)
        now = asyncio.get_running_loop().time()
        shell.window.take(payload_bytes, len(payloads))
        try:
            shell.push(payloads, payload_bytes, now)
        except Exception as error:  # part of it may have been sent
            raise shell.end_after(error).for_entry(first, "unknown") from error
        self._watch.note_sent(now)
        return first

    def flush(self) -> None:
        """Send the entries appended since the last loop iteration, in few batches. If that fails,
        the writer ends.
        """
        payloads, self._gathered = self._gathered, []
        if not payloads or self._shell.failure is not None:
            return
        try:
            self._send(payloads)
        except Exception as error:  # noqa: BLE001 - entries have ids, and were not sent
            self._shell.end_after(error)

    def _send(self, payloads: list[bytes]) -> None:
        shell = self._shell
        now = asyncio.get_running_loop().time()
        if len(payloads) == 1:  # a single entry always fits
            shell.push(payloads, self.limits.stored_bytes(payloads[0]), now)
        else:
            first = EntryId(shell.outbox.lap + 1)
            for cut in cut_batches(payloads, first, self.quorum, self.limits):
                shell.push(cut.payloads, cut.payload_bytes, now)
        self._watch.note_sent(now)

    def require_open(self) -> None:
        """Raise the error of a writer that admits nothing at present."""
        failure = self._shell.failure
        if failure is not None:
            raise failure.for_entry(EntryId(-1), "not_written")
        if self.is_closing:
            text = "this writer is closed: create a new ledger to continue"
            raise LedgerClosedError(text, ledger_id=self.ledger_id)
        if self._shell.protocol.lacks_in_sync:
            protocol = self._shell.protocol
            self._watch.wake()
            raise not_enough_in_sync(protocol.metadata, protocol.in_sync)
