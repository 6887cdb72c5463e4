"""Unclean recovery: close of an in-sync ledger whose last members are lost, at the end of the
entries that others still hold; and the fences of the members that it could not reach.

Leaves the clean recovery, which is tried first, to `recoverer.py`.

This loses acknowledged entries: those of the last fragments of which no replica answers. A last
fragment whose members answer that they hold nothing of it is given up with the fragments before it:
nothing of it was acknowledged. The metadata records the fragments that were given up, with the
bookies that held them; those bookies keep their copies if they come back. A writer that is cut off
from this process but not from those bookies may have confirmed entries until the close was stored.
It continues until a member refuses its adds: the late fences make the members do so.

Invariants: only complete fragments are given up, newest first; the first one only on request; and
only if a clean recovery has just failed; the close is by compare-and-set, from IN_RECOVERY. One
late fence of a bookie is under way for each ledger; none starts later than FENCE_FOR_S after the
close.

Source: protocol rule 11.6; Kafka's unclean leader election (KIP-106).
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from bookie.wire.messages import ReadLac
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    ClientClosedError,
    LedgerError,
    MetadataUnavailableError,
    RecoveryUndecidedError,
)
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader, find_length_before
from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import VersionConflictError
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore


class UncleanRecovery:
    """One unclean recovery of one ledger that is IN_RECOVERY."""

    def __init__(
        self,
        *,
        pool: BookiePool,
        ledgers: LedgerStore,
        keys: LedgerKeys,
        config: ClientConfig,
        rng: Random,
        draw_token: Callable[[], UpdateToken],
        gives_up_all: bool = False,
        is_last_fragment_empty: bool = False,
    ) -> None:
        """`is_last_fragment_empty` is the result of the clean recovery that has just failed."""
        self._pool = pool
        self._ledgers = ledgers
        self._keys = keys
        self._config = config
        self._rng = rng
        self._draw_token = draw_token
        self._gives_up_all = gives_up_all
        self._is_last_fragment_empty = is_last_fragment_empty

    async def close(self) -> LedgerMetadata:
        """Close the ledger; return its new metadata, even if another process closed it.

        Raises RecoveryUndecidedError when no earlier fragment can be read to its end either, unless
        all may be given up, and the errors of the metadata service.
        """
        while True:
            metadata, version = await self._ledgers.get(self._keys.ledger_id, fresh=True)
            if metadata.state is LedgerState.CLOSED:
                return metadata
            index, length = await self._readable_end(metadata, version)
            closed = self._closed(metadata, index, length)
            try:
                await self._ledgers.compare_and_set(closed, version)
            except VersionConflictError:
                continue
            return closed

    def _closed(self, metadata: LedgerMetadata, index: int, length: int) -> LedgerMetadata:
        """Return the metadata closed before the fragment `index`; an empty one is not given up."""
        last = metadata.last_fragment
        if self._is_last_fragment_empty and metadata.fragments[index] is last:
            end = EntryId(last.first_entry_id - 1)
            return metadata.with_recovered((last,), end, length, self._draw_token())
        return metadata.with_given_up(index, length, self._draw_token())

    async def _readable_end(self, metadata: LedgerMetadata, version: Version) -> tuple[int, int]:
        """Return the index of the first fragment to drop, and the length of the remaining
        entries.
        """
        ledger = FollowedLedger(metadata, version, self._ledgers, self._rng)
        ranges = RangeReader(ledger, self._keys, self._pool, self._config, self._rng)
        missing: dict[str, str] = {}
        self._pool.attach(self._keys.ledger_id, self._keys.master_key)
        try:
            for index in range(len(metadata.fragments) - 1, 0, -1):
                end = metadata.fragments[index].first_entry_id
                try:
                    timeout_s = self._config.read_timeout_s
                    return index, await find_length_before(ranges, end, timeout_s)
                except MetadataUnavailableError:
                    raise  # the error says nothing about the replicas
                except LedgerError as error:
                    for bookie_id in metadata.fragments[index - 1].ensemble:
                        missing.setdefault(bookie_id, error.message)
        finally:
            self._pool.detach(self._keys.ledger_id)
        if self._gives_up_all:
            return 0, 0
        raise RecoveryUndecidedError(
            "no replica of any earlier fragment can be read to its end: start one of "
            f"{', '.join(missing or metadata.last_fragment.ensemble)} and recover it again",
            ledger_id=metadata.ledger_id,
            missing=missing,
        )


FENCE_FOR_S: Final = 60.0
"""Time after an unclean close for which members that do not answer are requested to fence."""
FENCE_PAUSE_MAX_S: Final = 2.0


class LateFences:
    """Late fences of one client, for all ledgers that it closed uncleanly."""

    def __init__(self, pool: BookiePool, rng: Random, call_timeout_s: float) -> None:
        self._pool = pool
        self._rng = rng
        self._call_timeout_s = call_timeout_s
        self._running: dict[LedgerId, asyncio.Task[tuple[BookieId, ...]]] = {}

    def start(self, keys: LedgerKeys, bookie_ids: Sequence[BookieId]) -> None:
        """Request the fences of a ledger in the background, unless that is under way."""
        if keys.ledger_id in self._running:
            return
        task = asyncio.get_running_loop().create_task(self._fence_all(keys, bookie_ids))
        self._running[keys.ledger_id] = task
        task.add_done_callback(lambda _: self._running.pop(keys.ledger_id))

    async def wait(self, ledger_id: LedgerId) -> tuple[BookieId, ...]:
        """Wait until each bookie has fenced a ledger or the time is up; return those that did not
        fence it. Raises ClientClosedError.
        """
        task = self._running.get(ledger_id)
        if task is None:
            return ()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # not the caller
                raise ClientClosedError(
                    "the client was closed: create a new one", ledger_id=ledger_id
                ) from None
            raise

    async def aclose(self) -> None:
        """Stop requesting fences."""
        await cancel_and_wait(*self._running.values())

    async def _fence_all(
        self, keys: LedgerKeys, bookie_ids: Sequence[BookieId]
    ) -> tuple[BookieId, ...]:
        self._pool.attach(keys.ledger_id, keys.master_key)
        try:
            calls = [self._fence(keys.ledger_id, bookie_id) for bookie_id in bookie_ids]
            fenced = await asyncio.gather(*calls)
        finally:
            self._pool.detach(keys.ledger_id)
        return tuple(b for b, is_fenced in zip(bookie_ids, fenced, strict=True) if not is_fenced)

    async def _fence(self, ledger_id: LedgerId, bookie_id: BookieId) -> bool:
        """Request a fence until it is stored; return False once the time is up."""
        request = ReadLac(ledger_id, fence=True)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FENCE_FOR_S
        backoff = Backoff(self._rng, max_s=FENCE_PAUSE_MAX_S)
        while (left_s := deadline - loop.time()) > 0:
            try:
                timeout_s = min(left_s, self._call_timeout_s)
                reply = await self._pool.read_lac(bookie_id, request, timeout_s=timeout_s)
                if reply.fenced:
                    return True
            except BookieCallError as error:
                if error.failure is CallFailure.CLOSED:
                    return False
            await asyncio.sleep(backoff.next_s())
        return False
