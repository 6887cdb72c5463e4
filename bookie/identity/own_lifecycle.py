"""What operators and repair set of this bookie: its state in the cluster's life, and its read-only
mode.

Leaves the record of the state and its transitions to `metadata.repair.lifecycle`, the effects on
adds and on the registration to `bookie.storage.writability`, and the route of the switch to
`bookie.server.admin`. Both survive a restart: the state is in the metadata service, the mode on the
disk.

Source: protocol rules 9.8 and 9.13; metadata design, "Registration".
"""

import asyncio
from functools import partial
from random import Random
from typing import Final, assert_never

from bookie.errors import BookieRemovedError
from bookie.files.disk import Disk, read_mark, remove_mark, write_mark
from bookie.storage.writability import Reason, Writability
from metadata.backoff import Backoff
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LIFECYCLE_KIND
from metadata.store.interface import MetadataStore
from quire.server.server_log import ServerLog

READ_ONLY_NAME: Final = "read-only"
_TEXT: Final = b"An operator made this bookie read-only: quire bookie readonly ID off\n"


async def read_lifecycle(store: MetadataStore, bookie_id: BookieId) -> BookieLifecycle:
    """Return a bookie's record, by a fresh read. Raises MetadataError."""
    return await LIFECYCLE_KIND.node(bookie_id).find(store) or UNCHANGED


async def refuse_removed(store: MetadataStore, bookie_id: BookieId) -> None:
    """Raise BookieRemovedError if an operator removed the bookie. Also raises MetadataError."""
    record = await read_lifecycle(store, bookie_id)
    if record.state is Lifecycle.REMOVED:
        raise BookieRemovedError(bookie_id, record.reason)


class OwnLifecycle:
    """State of this bookie in the cluster's life, and its effects here.

        state     effect active    none draining  Registered as not writable at once. Ordinary adds
        are refused `grace_s` later, so that writers replace the bookie without a stall; at once, if
        this process has just started. drained   Ordinary adds and recovery adds are refused. Reads
        and fences continue. limbo     As draining: copies that may lack entries are moved to other
        bookies. lost      none: the auditor sees the registration and makes the bookie active.
        removed   The process ends, and every later start is refused.

    Invariants: after a start that finds the bookie draining or in limbo, no ordinary add is
    accepted, and none after `grace_s` in a process that learns it later; a record that cannot be
    read changes nothing.
    """

    def __init__(
        self,
        store: MetadataStore,
        rng: Random,
        bookie_id: BookieId,
        writability: Writability,
        log: ServerLog,
    ) -> None:
        self._store = store
        self._rng = rng
        self._bookie_id = bookie_id
        self._writability = writability
        self._log = log
        self._grace: asyncio.TimerHandle | None = None
        """Timer that ends the time in which a draining bookie accepts ordinary adds."""

    async def restore(self) -> None:
        """Apply the record as it is at a start. Raises MetadataError, BookieRemovedError."""
        self._apply(await read_lifecycle(self._store, self._bookie_id), grace_s=0.0)

    async def run(self, grace_s: float) -> None:
        """Apply every change until cancelled. Raises BookieRemovedError."""
        changed = asyncio.Event()
        changed.set()  # it may have changed since the start
        cancel = self._store.watch_value(LIFECYCLE_KIND.path(self._bookie_id), changed.set)
        backoff = Backoff(self._rng)
        try:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    await self._read(grace_s)
                    backoff.count = 0
                except MetadataError:
                    changed.set()
                    await asyncio.sleep(backoff.next_s())
        finally:
            cancel()
            self._cancel_grace()

    async def _read(self, grace_s: float) -> None:
        try:
            record = await read_lifecycle(self._store, self._bookie_id)
        except MetadataFormatError as error:  # of a later release: the next change may be known
            self._log.warning("state of the bookie not read", reason=str(error))
            return
        self._apply(record, grace_s=grace_s)

    def _apply(self, record: BookieLifecycle, *, grace_s: float) -> None:
        writability, why = self._writability, _quoted(record.reason)
        match record.state:
            case Lifecycle.ACTIVE | Lifecycle.LOST:
                self._cancel_grace()
                writability.end(Reason.DRAINING)
                writability.end(Reason.DRAINED)
            case Lifecycle.DRAINING:
                self._drain(f"an operator drains it{why}", grace_s)
            case Lifecycle.LIMBO:
                self._drain(f"its copies are not proven, and are moved{why}", grace_s)
            case Lifecycle.DRAINED:
                self._cancel_grace()
                writability.begin(Reason.DRAINED, f"its copies were moved{why}")
                writability.end(Reason.DRAINING)
            case Lifecycle.REMOVED:
                raise BookieRemovedError(self._bookie_id, record.reason)
            case Lifecycle.UNREADABLE:
                raise AssertionError("`read_lifecycle` raises an error for an unreadable record")
            case _:
                assert_never(record.state)

    def _drain(self, text: str, grace_s: float) -> None:
        writability = self._writability
        if writability.has(Reason.DRAINING):
            return
        if grace_s:
            refuse_adds = partial(writability.begin, Reason.DRAINING, text)
            self._grace = asyncio.get_running_loop().call_later(grace_s, refuse_adds)
        writability.begin(Reason.DRAINING, text, still_accepts=grace_s > 0)
        writability.end(Reason.DRAINED)

    def _cancel_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None


def _quoted(reason: str) -> str:
    return f": {reason}" if reason else ""


class OperatorSwitch:
    """Read-only mode of one bookie.

    Format: the file `identity/read-only` exists while the bookie must be read-only; its text is for
    operators. Invariant: the mark is durably written or removed before the switch takes effect and
    is answered.
    """

    def __init__(self, disk: Disk, writability: Writability) -> None:
        self._disk = disk
        self._writability = writability
        self._switching = asyncio.Lock()

    async def restore(self) -> None:
        """Make the storage read-only if the mark exists. Call it once, at a start."""
        if await read_mark(self._disk, READ_ONLY_NAME) is not None:
            self._writability.set_by_operator(is_read_only=True)

    async def switch(self, *, is_read_only: bool) -> None:
        """Store the mode durably, then apply it. Raises DiskFullError, DiskFailedError: then
        nothing has changed.
        """
        async with self._switching:
            if is_read_only:
                await write_mark(self._disk, READ_ONLY_NAME, _TEXT)
            else:
                await remove_mark(self._disk, READ_ONLY_NAME)
            self._writability.set_by_operator(is_read_only=is_read_only)
