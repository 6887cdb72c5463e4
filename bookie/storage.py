"""Adds, reads, fences and checkpoints in terms of the log, the index and the ledger states.

Leaves sockets and frames to `bookie.server`.

Source: protocol rules 2.4, 4.3, 7.2, 8.3, 10; storage design.
"""

import random
from collections.abc import Callable

from bookie.answers import EntryRangesResult, LedgerSnapshot, ReadResult, StorageStatistics
from bookie.config import StorageConfig
from bookie.disk import Disk
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId


class BookieStorage:
    """The storage of one bookie. Every method belongs to the event loop that opened it."""

    @classmethod
    async def open(
        cls, disk: Disk, config: StorageConfig, *, rng: random.Random
    ) -> "BookieStorage":
        """Replay the log over the index and return the storage, ready. `background()` must then run
        as a task.

        Raises FormatError for files of a newer release, DiskFailedError when the disk refuses.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Wait for what is queued, checkpoint, seal the log and release every file. Watches are
        dropped silently.
        """
        raise NotImplementedError

    async def background(self) -> None:
        """Checkpoint, clean and watch the disk's marks until cancelled. Raises DiskFailedError once
        the disk failed: the process must then stop. Run it as one task from open to close.
        """
        raise NotImplementedError

    def add(
        self,
        batch: BatchView,
        *,
        recovery: bool,
        master_key: bytes | None,
        done: Callable[[Status], None],
    ) -> None:
        """Accept and queue a batch in this loop step, or refuse it; `done` is called once, in this
        call when refused or already decided, else in the loop step in which the group commit that
        holds it became durable.

        The batch's buffer must not change afterwards. The batch CRC is checked here. Statuses: OK,
        BAD_REQUEST (CRC), FENCED, CONFLICT, READ_ONLY, UNAUTHORIZED, DELETED, UNKNOWN (a duplicate
        cannot be compared, or the disk failed), CLOSING.
        """
        raise NotImplementedError

    def on_group_durable(self, callback: Callable[[], None]) -> None:
        """Register what is called after all `done` callbacks of one group commit, in the same loop
        step.
        """
        raise NotImplementedError

    @property
    def queued_bytes(self) -> int:
        """Bytes accepted and not yet durable."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Tell whether the queue is below its bound; when not, stop reading sockets and
        `wait_for_room()`.
        """
        raise NotImplementedError

    async def wait_for_room(self) -> None:
        """Return once the queue is below its bound, or the log has failed."""
        raise NotImplementedError

    async def fence(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Refuse ordinary adds to the ledger for ever, durably, also for a ledger never seen (rule
        7.2).

        The snapshot is taken after everything accepted before is durable. Statuses: OK,
        UNAUTHORIZED, DELETED, READ_ONLY (no room even in the reserve), UNKNOWN (limbo, or the disk
        failed).
        """
        raise NotImplementedError

    async def read_lac(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Return what is known of a ledger. Statuses: OK, NO_SUCH_LEDGER, UNKNOWN, UNAUTHORIZED,
        DELETED.
        """
        raise NotImplementedError

    async def write_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None
    ) -> LedgerSnapshot:
        """Store an explicit LAC, durably (rule 8.4). Statuses: as `add`, without CONFLICT."""
        raise NotImplementedError

    async def read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
        *,
        after_fence: bool,
    ) -> ReadResult:
        """Return entries first..last, at most about `bytes_max` (at least one batch), in order and
        without gaps.

        `after_fence`: the caller fenced the ledger just before (rule 7.3). Statuses: OK,
        NO_SUCH_ENTRY, NO_SUCH_LEDGER, UNKNOWN (damaged or limbo), UNAUTHORIZED, DELETED,
        BAD_REQUEST.
        """
        raise NotImplementedError

    def try_read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
    ) -> ReadResult | None:
        """Return what `read` would when it all lies in the recent-entries cache, else None. Not for
        recovery reads.
        """
        raise NotImplementedError

    def watch_lac(self, ledger_id: LedgerId, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the loop each time the ledger's LAC advances, and once when it is fenced or
        deleted; returns what cancels the watch. A watch of a ledger never seen is allowed.
        """
        raise NotImplementedError

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        """Return the advertised LAC, NO_ENTRY when the ledger is not known. Never waits."""
        raise NotImplementedError

    async def entry_ranges(
        self, ledger_id: LedgerId, first_entry_id: EntryId, limit: int
    ) -> EntryRangesResult:
        """List the ranges held from `first_entry_id` on, at most `limit` of them."""
        raise NotImplementedError

    def ledger_ids(self) -> list[LedgerId]:
        """List every ledger held or fenced here, ascending; deleted ones are left out."""
        raise NotImplementedError

    @property
    def ledger_count(self) -> int:
        """How many ledgers are held or fenced here."""
        raise NotImplementedError

    async def delete_ledger(self, ledger_id: LedgerId) -> Status:
        """Refuse the ledger's id for ever, durably (rule 10.2), and give its bytes to the next
        cleaning.

        The caller has made sure by rule 10.1 that it may. Statuses: OK, READ_ONLY, UNKNOWN.
        """
        raise NotImplementedError

    def set_read_only(self, read_only: bool) -> None:  # noqa: FBT001 - it is the switch itself
        """Refuse (or accept again) ordinary adds by an operator's wish; fences, recovery adds and
        reads go on.
        """
        raise NotImplementedError

    @property
    def is_writable(self) -> bool:
        """Tell whether ordinary adds are accepted: no operator, disk mark or limbo forbids it."""
        raise NotImplementedError

    def on_writable_change(self, callback: Callable[[], None]) -> None:
        """Register what is called on the loop whenever `is_writable` may have changed."""
        raise NotImplementedError

    def statistics(self) -> StorageStatistics:
        """Return counters and gauges."""
        raise NotImplementedError

    async def checkpoint(self) -> None:
        """Move what the memory holds into the index, and advance the mark."""
        raise NotImplementedError

    async def clean(self) -> int:
        """Drop dead segments and rewrite low-live ones that are due; returns the bytes freed."""
        raise NotImplementedError
