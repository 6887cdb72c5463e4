"""Fences of the members that an unclean recovery could not reach, requested again after the close.

Leaves the close to `unclean_recovery.py`.

A writer that reaches those members, but not the metadata service, continues until a member refuses
its adds. The fence makes them do so.

Invariant: one request to a bookie is under way for each ledger; none starts later than FENCE_FOR_S
after the close.

Source: protocol rule 11.6.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from bookie.wire.messages import ReadLac
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import ClientClosedError
from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.ids import BookieId, LedgerId

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
            calls = [self._fence(keys.ledger_id, each) for each in bookie_ids]
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
