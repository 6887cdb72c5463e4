"""Handle of a ledger that is being written: the result of `create_ledger`.

Leaves the protocol and its actions to `append_shell`, ids and batches to `admission`, and waiting
for room to `outbox`.

Source: api design, "Client"; protocol sections 4-6, rule 8.4.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Final, Self

from ledger_client.digest import LedgerKeys
from ledger_client.encryption.ledger_cipher import PayloadSealer
from ledger_client.errors import (
    BackpressureError,
    EntryNotFoundError,
    LedgerClosedError,
    LedgerError,
    MetadataUnavailableError,
    QuorumTimeoutError,
    append_timed_out,
)
from ledger_client.handle import Handle, LoopGuard, ledger_text
from ledger_client.info import LedgerInfo
from ledger_client.protocol import append_events as e
from ledger_client.writing.admission import (
    Admission,
    AppendedRange,
    BatchLimits,
    EntryLike,
    append_range,
    own_entry,
)
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.confirmations import Follower
from ledger_client.writing.in_sync_members import InSyncMembers
from ledger_client.writing.watchdog import Watchdog
from ledger_client.writing.writer_services import WriterServices
from ledger_client.writing.writer_watch import WriterWatch
from metadata.cancelling import cancel_and_wait
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata

SETTLE_WAIT_S: Final = 0.5
"""Maximum time for which a close waits for the slowest copies of confirmed entries."""


class LedgerWriter(Handle):
    """Appends to one open ledger, as its only writer. Belongs to the loop that created it."""

    def __init__(
        self,
        *,
        metadata: LedgerMetadata,
        version: Version,
        keys: LedgerKeys,
        services: WriterServices,
        watchdog: Watchdog,
        observe: Callable[[e.MembersChanged | e.FailWriter], None],
        on_closed: Callable[[LedgerId], None],
        sealer: PayloadSealer | None = None,
    ) -> None:
        config = services.config
        self.ledger_id: Final = metadata.ledger_id
        self._services = services
        self._shell = AppendShell(metadata, version, keys, services, observe, sealer)
        self._own_loop: Final = LoopGuard("writer", self.ledger_id, asyncio.get_running_loop())
        is_in_sync = metadata.quorum.is_in_sync and not config.fixed_membership
        members = InSyncMembers(self._shell, services, keys) if is_in_sync else None
        self._watch = WriterWatch(self._shell, services, members, watchdog)
        limits = BatchLimits.of(config, 0 if sealer is None else sealer.overhead_bytes)
        self.admission: Final = Admission(
            self._shell, self._watch, limits, services.next_tick, self.ledger_id
        )
        """Ids and batches without any wait, for a layer above that waits itself."""
        self._draining: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._on_closed = on_closed
        services.pool.attach(metadata.ledger_id, keys.master_key)

    # -- public interface --------------------------------------------------------------------------

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
        """The last assigned entry id; -1 before the first."""
        return self.admission.last_pushed

    @property
    def info(self) -> LedgerInfo:
        """The ledger's metadata, as this writer last read or stored it."""
        return LedgerInfo.of(self._shell.protocol.metadata)

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """Members that hold every entry, are alive and do not lag (11.4); empty in quorum mode."""
        return self._shell.protocol.in_sync

    @property
    def members(self) -> tuple[BookieId, ...]:
        """The bookies of the last fragment."""
        return self._shell.protocol.metadata.last_fragment.ensemble

    @property
    def has_ended(self) -> bool:
        """Whether it takes no appends any more: its close has begun, or it failed."""
        return self._shell.failure is not None or self._closing is not None

    @property
    def under_replicated(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Ranges (first, last) of confirmed entries not on their complete write quorum (4.6)."""
        return self._shell.replication.stretches

    async def append(self, data: EntryLike, *, timeout: float | None = None) -> int:
        """Append one entry; return its id once it is confirmed: durable on an ack quorum, as is
        every entry before it.

        If it is cancelled or times out before the entry gets an id, nothing is sent; afterwards the
        entry keeps its id and may still be confirmed. Raises EntryTooLargeError, LedgerClosedError,
        LedgerFencedError, NotEnoughBookiesError, NotEnoughInSyncReplicasError, ClientClosedError,
        QuorumTimeoutError (outcome "unknown" once an id was assigned: `entry_id`).
        """
        self._own_loop.require()
        owned = own_entry(data, self.admission.limits, self.ledger_id)
        size = self.admission.limits.stored_bytes(owned)
        window = self._shell.window
        if timeout is None and window.is_free(size):
            return await self._shell.confirmations.expect(self.admission.push_entry(owned, size))
        entry_id: EntryId | None = None
        try:
            async with asyncio.timeout(timeout):
                async with window.turn():
                    await window.wait_for_room(size, 1)
                    entry_id = self.admission.push_entry(owned, size)
                    handle = self._shell.confirmations.expect(entry_id)
                return await handle
        except QuorumTimeoutError:
            raise
        except TimeoutError as error:
            raise append_timed_out(self.ledger_id, entry_id, timeout) from error

    def append_nowait(self, data: EntryLike) -> asyncio.Future[int]:
        """Append one entry and return the future of its id. Raises BackpressureError, and sends
        nothing, when the window is full or earlier callers wait for room.
        """
        return self._shell.confirmations.expect(self.append_followed(data))

    def append_followed(self, data: EntryLike) -> EntryId:
        """Append one entry as `append_nowait`, and return its id; the follower gets the outcome."""
        self._own_loop.require()
        owned = own_entry(data, self.admission.limits, self.ledger_id)
        size = self.admission.limits.stored_bytes(owned)
        if not self._shell.window.is_free(size):
            self.admission.require_open()
            window = self._shell.window
            why = "earlier callers wait for room"
            if not window.has_room(size):
                why = f"{window.entries} entries are pending, the window is full"
            text = f"{why}: await some of them, or use append(), which waits"
            raise BackpressureError(text, ledger_id=self.ledger_id)
        return self.admission.push_entry(owned, size)

    def follow(self, follower: Follower) -> None:
        """Call `follower` in a separate loop iteration: with None whenever the LAC has moved, with
        the error once all unconfirmed entries have failed. A ledger has at most one follower.
        """
        self._shell.confirmations.follow(follower)

    async def append_many(
        self,
        entries: Iterable[EntryLike] | AsyncIterable[EntryLike],
        *,
        timeout: float | None = None,
    ) -> range:
        """Append all entries, pipelined within the window; return their ids once all are confirmed.

        The ids form one range: other appends wait until its last entry is admitted. Raises the
        errors of `append`, with `first_entry_id`, `admitted_count` and `confirmed_count`.
        """
        self._own_loop.require()
        self.admission.require_open()
        done = AppendedRange()
        try:
            async with asyncio.timeout(timeout):
                async with self._shell.window.turn():
                    await append_range(self.admission, entries, done)
                if done.count:
                    await self._shell.confirmations.expect(EntryId(done.first + done.count - 1))
        except LedgerError as error:
            raise done.describe(error, self.last_confirmed) from error.__cause__
        except TimeoutError as error:
            text = f"append_many did not end within {timeout} s: see `confirmed_count`"
            late = QuorumTimeoutError(text, ledger_id=self.ledger_id)
            raise done.describe(late, self.last_confirmed) from error
        return range(done.first, done.first + done.count)

    def expect_stored(self, entry_id: EntryId) -> asyncio.Future[int]:
        """Return a future that is resolved once one bookie has stored an entry durably; call it
        right after the append. The entry may still prove not to be in the ledger.
        """
        self._own_loop.require()
        return self._shell.first_replica_waiters.expect(entry_id)

    async def wait_fully_replicated(self, entry_id: int, *, timeout: float | None = None) -> None:
        """Return once an entry is on its complete write quorum. Raises QuorumTimeoutError, also if
        only a repair can bring it there; EntryNotFoundError for an id that is not assigned yet.
        """
        self._own_loop.require()
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
            text = f"entry {entry_id} lacks copies after {limit} s: call this again"
            raise QuorumTimeoutError(text, ledger_id=self.ledger_id) from error

    async def aclose(self, *, timeout: float | None = None) -> None:
        """Wait for pending appends and close the ledger at its LAC. Another call waits for the same
        close.

        `timeout` limits first the wait and then the close. Raises the error that ended the writer
        if it failed (the ledger is closed nevertheless, if possible), LedgerFencedError when
        another client ended the ledger elsewhere (rule 6.2), MetadataUnavailableError when the
        close was not stored in time: the client tries on for as long as it lives.
        """
        await self._close(timeout, wait_pending=True)
        if self._shell.failure is not None:
            raise self._shell.failure.fresh() from self._shell.failure.__cause__

    async def abort(self, *, timeout: float | None = None) -> None:
        """Close the ledger at its LAC without waiting: pending appends fail, outcome "unknown"."""
        self._own_loop.require()
        self._give_up_pending()
        await self._close(timeout, wait_pending=False)

    async def stop(self) -> None:
        """End the writer, closed or not, because its client ends: for the client."""
        await cancel_and_wait(self._draining, self._closing)

    def _description(self) -> str:  # type: ignore[explicit-override]
        return ledger_text(self.ledger_id, self.last_confirmed, is_open=not self.has_ended)

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

    @property
    def is_usable(self) -> bool:
        """Whether the writer has not ended and, in in-sync mode, enough members are in sync."""
        shell = self._shell
        return not self.has_ended and not shell.protocol.lacks_in_sync

    @property
    def fully_replicated_to(self) -> EntryId:
        """Last entry for which no bookie's answer is awaited any more: all entries up to it are on
        their complete write quorum, except those in `under_replicated`. -1 before the first.
        """
        return self._shell.replication.settled

    # -- closing ---------------------------------------------------------------------------------

    async def _close(self, timeout: float | None, *, wait_pending: bool) -> None:
        self._own_loop.require()
        loop = asyncio.get_running_loop()
        if self._draining is None:
            self.admission.is_closing = True
            self._draining = loop.create_task(self._drain(timeout, wait_pending=wait_pending))
        if self._closing is None:
            self._closing = loop.create_task(self._run_close(self._draining))
        await asyncio.shield(self._draining)
        limit = self._services.config.close_timeout_s if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(self._closing)
        except TimeoutError as error:
            text = (
                f"the close was not stored within {limit} s and may still be: the client tries on "
                "for as long as it lives; call aclose() again to wait for it"
            )
            late = MetadataUnavailableError(text, ledger_id=self.ledger_id, outcome="unknown")
            raise late from error

    async def _drain(self, timeout: float | None, *, wait_pending: bool) -> None:
        """Confirm or fail what is pending, and request the close."""
        self.admission.flush()
        if wait_pending:
            await self._wait_pending(timeout)
        self._give_up_pending()

    async def _run_close(self, draining: asyncio.Task[None]) -> None:
        """Wait for the close however long it takes: while the ledger stays open and this client
        lives, nothing else recovers it (rule 9.2).
        """
        shell = self._shell
        try:
            await draining
            await shell.closed
        except LedgerError:
            assert shell.failure is not None, "the error that ended the writer is kept"
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
        """Fail pending appends and request the close (rule 6.1), unless that is done."""
        self.admission.flush()
        shell = self._shell
        text = "the writer was closed before the entry was confirmed: read the ledger to find it"
        shell.fail_pending(LedgerClosedError(text, ledger_id=self.ledger_id, outcome="unknown"))
        if not shell.closed.done() and shell.failure is None:
            shell.dispatch(e.CloseRequested(self._services.token()))
