"""Durable removal of ledgers from a storage.

Leaves the permission to remove a ledger to `bookie.server.collector` (rule 10.1), and freeing its
bytes to `bookie.storage.cleaner`.

Invariants: a ledger is released by a record in the log, and its runs are deleted from the index
before another checkpoint begins; a start does the same for every such record that it replays.
Source: protocol rules 10.1, 10.2.
"""

import asyncio
from functools import partial

from bookie.errors import DiskFullError
from bookie.log import records
from bookie.log.records import RecordKind
from bookie.storage.admission import Admission
from bookie.storage.commits import Commits, resolve
from bookie.storage.upkeep import UpkeepParts
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, LedgerId


class Deletions:
    """Running removals of ledgers."""

    def __init__(
        self,
        parts: UpkeepParts,
        admission: Admission,
        commits: Commits,
        checkpointing: asyncio.Lock,
    ) -> None:
        """`checkpointing` is held while runs are moved to the index's store."""
        self._ledgers = parts.ledgers
        self._cold = parts.cold
        self._admission = admission
        self._commits = commits
        self._index = parts.index
        self._segments = parts.segments
        self._checkpointing = checkpointing

    async def delete(self, ledger_id: LedgerId) -> Status:
        """See `BookieStorage.delete_ledger`."""
        begin = partial(self._begin_delete, ledger_id)
        return await (await self._cold.run(ledger_id, begin))

    def _begin_delete(self, ledger_id: LedgerId) -> asyncio.Future[Status]:
        durable: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        if self._ledgers.is_deleted(ledger_id):
            durable.set_result(Status.OK)
            return durable
        state, deleting = self._ledgers.states.get(ledger_id), self._admission.deleting
        deleting[ledger_id] = deleting.get(ledger_id, 0) + 1
        if state is not None:
            state.use_count += 1  # the state must stay in memory until the tombstone takes effect

        def note_end(status: Status) -> None:
            deleting[ledger_id] -= 1
            if not deleting[ledger_id]:
                del deleting[ledger_id]
            if state is not None:
                state.use_count -= 1
            resolve(durable, status)

        self._commits.queue(RecordKind.TOMBSTONE, records.encode_ledger(ledger_id), note_end)
        return durable

    async def release(self, ledger_id: LedgerId) -> Status:
        """See `BookieStorage.release_ledger`."""
        state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
        if state is None:
            return Status.NO_SUCH_LEDGER
        releasing = self._admission.releasing
        releasing[ledger_id] = releasing.get(ledger_id, 0) + 1
        try:
            # Runs stored from now on are newer than the release, so no checkpoint may run during
            # it.
            async with self._checkpointing:
                return await self._release(ledger_id)
        except DiskFullError:
            return Status.READ_ONLY
        finally:
            releasing[ledger_id] -= 1
            if not releasing[ledger_id]:
                del releasing[ledger_id]
            state.use_count -= 1

    async def is_released(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger was released and nothing was stored for it since."""
        state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
        if state is None:
            return False
        state.use_count -= 1
        is_empty = state.highest == NO_ENTRY and not state.queued_count
        return state.released and is_empty and not await self._index.has_runs(ledger_id)

    async def _release(self, ledger_id: LedgerId) -> Status:
        if self._index.is_moving(ledger_id):
            return Status.READ_ONLY  # a checkpoint failed before its end: the next one completes it
        body = records.encode_ledger(ledger_id)
        status = await self._commits.append(RecordKind.RELEASED, body)
        if status is Status.OK:
            await self._index.delete_all(ledger_id, self._segments.free)
        return status
