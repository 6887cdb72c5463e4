"""The handle of a ledger that is being written: what `create_ledger` gives.

Leaves the protocol and its performance to `append_shell`, batches to `batcher`, bounds to `window`.

Source: api, "Client"; protocol sections 4-6, rule 8.4.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Final, Self

from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    BackpressureError,
    EntryNotFoundError,
    LedgerClosedError,
    LedgerError,
    MetadataUnavailableError,
    QuorumTimeoutError,
    append_timed_out,
)
from ledger_client.fork_guard import OwnProcess
from ledger_client.info import LedgerInfo
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append_errors import not_enough_in_sync
from ledger_client.writing.append_range import AppendedRange, EntryLike, append_range
from ledger_client.writing.append_shell import AppendShell, WriterServices
from ledger_client.writing.batcher import BatchLimits, cut_batches, own_entry
from ledger_client.writing.confirmations import Follower
from ledger_client.writing.in_sync_members import InSyncMembers
from ledger_client.writing.watchdog import Watchdog
from ledger_client.writing.window import AppendWindow
from ledger_client.writing.writer_watch import WriterWatch
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec

SETTLE_WAIT_S: Final = 0.5
"""How long a close waits for the slowest copies of confirmed entries."""


class LedgerWriter:
    """Appends to one open ledger, as its only writer. Belongs to the loop that made it."""

    def __init__(
        self,
        *,
        metadata: LedgerMetadata,
        version: Version,
        keys: LedgerKeys,
        services: WriterServices,
        watchdog: Watchdog,
        observe: Callable[[e.EnsembleChanged | e.FailWriter], None],
        on_closed: Callable[[LedgerId], None],
    ) -> None:
        config = services.config
        self.ledger_id: Final = metadata.ledger_id
        self._services = services
        self._shell = AppendShell(metadata, version, keys, services, observe)
        entries_max, bytes_max = config.batch_entries_max, config.batch_bytes_max
        self._limits = BatchLimits(entries_max, bytes_max, config.entry_bytes_max)
        self._own_process = OwnProcess("writer", metadata.ledger_id)
        self._gathered: list[bytes] = []
        is_in_sync = metadata.quorum.is_in_sync and not config.fixed_membership
        members = InSyncMembers(self._shell, services, keys) if is_in_sync else None
        self._watch = WriterWatch(self._shell, services, members, watchdog)
        self._closing: asyncio.Task[None] | None = None
        self._on_closed = on_closed
        services.pool.attach(metadata.ledger_id, keys.master_key)

    # -- what users see --------------------------------------------------------------------------

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self.ledger_id

    @property
    def last_confirmed(self) -> EntryId:
        """The LAC: this entry and all before it are acknowledged; -1 before the first."""
        return self._shell.protocol.lac

    @property
    def last_pushed(self) -> EntryId:
        """The last entry id given; -1 before the first."""
        return EntryId(self._shell.outbox.lap + len(self._gathered))

    @property
    def info(self) -> LedgerInfo:
        """The ledger as stored, as far as this writer knows."""
        return LedgerInfo.of(self._shell.protocol.metadata)

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """In in-sync mode, the members that hold every entry, are alive and do not lag (rule
        11.4); in other modes none.
        """
        return self._shell.protocol.in_sync

    @property
    def members(self) -> tuple[BookieId, ...]:
        """The bookies of the last fragment."""
        return self._shell.protocol.metadata.last_fragment.ensemble

    @property
    def under_replicated(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Ranges (first, last) of confirmed entries that are short of their write quorum (4.6)."""
        return self._shell.replication.stretches

    async def append(self, data: EntryLike, *, timeout: float | None = None) -> int:
        """Append one entry; return its id once it is confirmed: durable on an ack quorum, as is
        every entry before it.

        Cancelled or timed out before its id is given, it sends nothing; afterwards the entry keeps
        its id and may yet be confirmed. Raises EntryTooLargeError, LedgerClosedError,
        LedgerFencedError, NotEnoughBookiesError, QuorumTimeoutError (outcome "unknown" once an id
        was given: `entry_id`).
        """
        owned = own_entry(data, self._limits, self.ledger_id)
        size = len(owned)
        window = self._shell.window
        if timeout is None and window.is_free(size):
            return await self._shell.confirmations.expect(self.push_entry(owned, size))
        entry_id: EntryId | None = None
        try:
            async with asyncio.timeout(timeout):
                async with window.turn:
                    await window.wait_for_room(size, 1)
                    entry_id = self.push_entry(owned, size)
                    handle = self._shell.confirmations.expect(entry_id)
                return await handle
        except QuorumTimeoutError:
            raise
        except TimeoutError as error:
            raise append_timed_out(self.ledger_id, entry_id, timeout) from error

    def append_nowait(self, data: EntryLike) -> asyncio.Future[int]:
        """Append one entry and return the future of its id. Raises BackpressureError, having sent
        nothing, when the window is full or earlier callers wait for room.
        """
        return self._shell.confirmations.expect(self.append_followed(data))

    def append_followed(self, data: EntryLike) -> EntryId:
        """Append one entry as `append_nowait` does, and return its id at once: whoever follows the
        ledger learns what becomes of it.
        """
        owned = own_entry(data, self._limits, self.ledger_id)
        size = len(owned)
        if not self._shell.window.is_free(size):
            self._require_open()
            raise BackpressureError(
                f"{self._shell.window.entries} entries are pending, the window is full: "
                "await some of them, or use append()",
                ledger_id=self.ledger_id,
            )
        return self.push_entry(owned, size)

    def follow(self, follower: Follower) -> None:
        """Have `follower` called in a turn of the loop of its own: with None whenever the LAC has
        moved, with the error once all that is not confirmed has failed. There is one at most.
        """
        self._shell.confirmations.follow(follower)

    async def append_many(
        self,
        entries: Iterable[EntryLike] | AsyncIterable[EntryLike],
        *,
        timeout: float | None = None,
    ) -> range:
        """Append all entries, pipelined within the window; return their ids once all are confirmed.

        The ids are one range: other appends wait until the last of these is admitted. Raises as
        `append`; the error tells `first_entry_id`, `admitted_count` and `confirmed_count`.
        """
        self._require_open()
        done = AppendedRange()
        try:
            async with asyncio.timeout(timeout):
                async with self._shell.window.turn:
                    await append_range(self, entries, done)
                if done.count:
                    await self._shell.confirmations.expect(EntryId(done.first + done.count - 1))
        except LedgerError as error:
            raise done.describe(error, self.last_confirmed) from error.__cause__
        except TimeoutError as error:
            text = f"append_many did not end within {timeout} s"
            late = QuorumTimeoutError(text, ledger_id=self.ledger_id)
            raise done.describe(late, self.last_confirmed) from error
        return range(done.first, done.first + done.count)

    def expect_stored(self, entry_id: EntryId) -> asyncio.Future[int]:
        """Return a future that is resolved once one bookie has an entry durably; ask right after it
        was appended. The entry may still turn out not to be in the ledger.
        """
        return self._shell.first_stores.expect(entry_id)

    async def wait_fully_replicated(self, entry_id: int, *, timeout: float | None = None) -> None:
        """Return once an entry is on all of its write quorum. Raises QuorumTimeoutError, also when
        it will not be before a repair; EntryNotFoundError for an id not given yet.
        """
        if not 0 <= entry_id <= self.last_pushed:
            text = f"entry {entry_id} has not been appended: the last one is {self.last_pushed}"
            raise EntryNotFoundError(text, ledger_id=self.ledger_id, entry_id=EntryId(entry_id))
        limit = self._services.config.call_timeout_s if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                await self._shell.replication.wait(EntryId(entry_id))
        except QuorumTimeoutError:
            raise
        except TimeoutError as error:
            text = f"entry {entry_id} was not on all of its write quorum within {limit} s"
            raise QuorumTimeoutError(text, ledger_id=self.ledger_id) from error

    async def aclose(self, *, timeout: float | None = None) -> None:
        """Wait for what is pending and close the ledger at its LAC. Again: the same outcome.

        `timeout` bounds the waiting, and again the storing. Raises what ended the writer if it
        failed (the ledger is closed all the same where that can be), LedgerFencedError when another
        client ended the ledger elsewhere (rule 6.2), MetadataUnavailableError when the close could
        not be stored in time.
        """
        await self._close(timeout, wait_pending=True)
        if self._shell.failure is not None:
            raise self._shell.failure

    async def abort(self, *, timeout: float | None = None) -> None:
        """Close the ledger at its LAC without waiting: what is pending fails, outcome "unknown"."""
        self._own_process.require()
        self._give_up_pending()
        await self._close(timeout, wait_pending=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
            return
        try:
            await self.abort()
        except LedgerError as second:
            error.add_note(f"and ledger {self.ledger_id} could not be closed: {second}")

    # -- admitting entries -----------------------------------------------------------------------

    def push_entry(self, payload: bytes, payload_bytes: int) -> EntryId:
        """Give an id to one entry, to be sent with the others of this tick; return the id."""
        self._require_open()
        self._shell.window.take(payload_bytes, 1)
        if not self._gathered:
            self._services.turn_calls.soon(self._flush)
        self._gathered.append(payload)
        return self.last_pushed

    def _flush(self) -> None:
        """Send what was appended since the last tick, as few batches."""
        payloads, self._gathered = self._gathered, []
        shell = self._shell
        if not payloads or shell.failure is not None:
            return
        now = asyncio.get_running_loop().time()
        if len(payloads) == 1:  # it fits, whatever its size
            shell.push(payloads, len(payloads[0]), now)
        else:
            first = EntryId(shell.outbox.lap + 1)
            for cut in cut_batches(payloads, first, shell.protocol.metadata.quorum, self._limits):
                shell.push(cut.payloads, cut.payload_bytes, now)
        self._watch.note_sent(now)

    @property
    def is_usable(self) -> bool:
        """Whether it has not ended, and, in in-sync mode, has as many members as appends need."""
        shell = self._shell
        has_ended = shell.failure is not None or self._closing is not None
        return not has_ended and not shell.protocol.lacks_in_sync

    @property
    def limits(self) -> BatchLimits:
        """How large batches and entries may be."""
        return self._limits

    @property
    def fully_replicated_to(self) -> EntryId:
        """Up to this entry no bookie's answer is awaited any more: each is on all of its write
        quorum, except those that `under_replicated` names. -1 before the first.
        """
        return self._shell.replication.settled

    @property
    def quorum(self) -> QuorumSpec:
        """How the ledger is replicated."""
        return self._shell.protocol.metadata.quorum

    @property
    def window(self) -> AppendWindow:
        """The bound of what is pending."""
        return self._shell.window

    @property
    def next_entry_id(self) -> EntryId:
        """The id that the next entry will get."""
        return EntryId(self.last_pushed + 1)

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        """Admit and send one whole batch of a range (the caller holds the turn and has room);
        return its first id.
        """
        self._flush()
        self._require_open()
        shell = self._shell
        first = EntryId(shell.outbox.lap + 1)
        now = asyncio.get_running_loop().time()
        shell.window.take(payload_bytes, len(payloads))
        shell.push(payloads, payload_bytes, now)
        self._watch.note_sent(now)
        return first

    def _require_open(self) -> None:
        self._own_process.require()
        failure = self._shell.failure
        if failure is not None:
            raise failure.for_entry(EntryId(-1), "not_written")
        if self._closing is not None:
            text = "this writer is closed: create a new ledger to go on"
            raise LedgerClosedError(text, ledger_id=self.ledger_id)
        if self._shell.protocol.lacks_in_sync:
            protocol = self._shell.protocol
            self._watch.wake()
            raise not_enough_in_sync(protocol.metadata, protocol.in_sync)

    # -- what the client calls -------------------------------------------------------------------

    def spare_joined(self) -> None:
        """Take note of a bookie that could replace a failed member."""
        self._shell.dispatch(e.SpareJoined())
        self._watch.wake()

    # -- closing ---------------------------------------------------------------------------------

    async def _close(self, timeout: float | None, *, wait_pending: bool) -> None:
        self._own_process.require()
        if self._closing is None:
            work = self._run_close(timeout, wait_pending=wait_pending)
            self._closing = asyncio.get_running_loop().create_task(work)
        await asyncio.shield(self._closing)

    async def _run_close(self, timeout: float | None, *, wait_pending: bool) -> None:
        shell = self._shell
        limit = self._services.config.close_timeout_s if timeout is None else timeout
        try:
            self._flush()
            if wait_pending:
                await self._wait_pending(timeout)
            self._give_up_pending()
            async with asyncio.timeout(limit):
                await asyncio.shield(shell.closed)
        except TimeoutError as error:
            text = (
                f"the close was not stored within {limit} s and may yet be: "
                "recover_ledger() settles it once the metadata service answers"
            )
            late = MetadataUnavailableError(text, ledger_id=self.ledger_id, outcome="unknown")
            raise late from error
        except LedgerError:
            assert shell.failure is not None, "what ended the writer is kept"
        finally:
            self._services.pool.detach(self.ledger_id)
            self._on_closed(self.ledger_id)
            await self._watch.aclose()
            await shell.aclose()

    async def _wait_pending(self, timeout: float | None) -> None:
        shell = self._shell
        try:
            async with asyncio.timeout(timeout):
                if len(shell.outbox):
                    await shell.confirmations.expect(self.last_pushed)
                await shell.replication.wait_settled(self.last_confirmed, SETTLE_WAIT_S)
        except LedgerError:
            return
        except TimeoutError:
            if len(shell.outbox):
                late = append_timed_out(self.ledger_id, shell.outbox.lap, timeout)
                shell.dispatch(e.WriterFailed(late))

    def _give_up_pending(self) -> None:
        """Fail what is pending and have the close stored (rule 6.1), unless that is done."""
        self._flush()
        shell = self._shell
        text = "the writer was closed before the entry was confirmed"
        shell.fail_pending(LedgerClosedError(text, ledger_id=self.ledger_id, outcome="unknown"))
        if not shell.closed.done() and shell.failure is None:
            shell.dispatch(e.CloseRequested(self._services.token()))
