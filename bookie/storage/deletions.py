"""Durable removal of ledgers from a storage.

Leaves the permission to remove a ledger to `bookie.server.collector` (rule 10.1), and freeing its
bytes to `bookie.storage.cleaner`.

Invariants: a ledger is released by a record in the log, and its runs are deleted from the index
before another checkpoint begins; a start does the same for every such record that it replays.
Source: protocol rules 10.1, 10.2.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from bookie.errors import DiskFullError
from bookie.log import records
from bookie.log.records import RecordKind
from bookie.storage.admission import Admission
from bookie.storage.commits import Commits, resolve
from bookie.storage.upkeep import UpkeepParts
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, LedgerId

if TYPE_CHECKING:
    from bookie.index.replica_state import ReplicaState


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

    async def release(self, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, Status]:
        """See `BookieStorage.release_ledgers`."""
        statuses = dict.fromkeys(ledger_ids, Status.NO_SUCH_LEDGER)
        held: list[ReplicaState] = []
        releasing = self._admission.releasing
        try:
            for ledger_id in ledger_ids:
                state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
                if state is not None:
                    held.append(state)
                    releasing[ledger_id] = releasing.get(ledger_id, 0) + 1
            # Runs stored from now on are newer than the release, so no checkpoint may run during
            # it.
            async with self._checkpointing:
                statuses |= await self._release([state.ledger_id for state in held])
        finally:
            for state in held:
                releasing[state.ledger_id] -= 1
                if not releasing[state.ledger_id]:
                    del releasing[state.ledger_id]
                state.use_count -= 1
        return statuses

    async def is_released(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger was released and nothing was stored for it since."""
        state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
        if state is None:
            return False
        state.use_count -= 1
        is_empty = state.highest == NO_ENTRY and not state.queued_count
        return state.released and is_empty and not await self._index.has_runs(ledger_id)

    async def _release(self, ledger_ids: list[LedgerId]) -> dict[LedgerId, Status]:
        statuses = dict.fromkeys(ledger_ids, Status.READ_ONLY)
        # A checkpoint that failed before its end may be moving runs: the next one completes it.
        ready = [each for each in ledger_ids if not self._index.is_moving(each)]
        append = partial(self._commits.append, RecordKind.RELEASED)
        answers = await asyncio.gather(*(append(records.encode_ledger(each)) for each in ready))
        statuses |= zip(ready, answers, strict=True)
        logged = [each for each in ready if statuses[each] is Status.OK]
        try:
            await self._index.delete_all(logged, self._segments.free)
        except DiskFullError:
            statuses |= dict.fromkeys(logged, Status.READ_ONLY)
        return statuses
