"""Removal of the data of deleted ledgers, and of the entries of closed ledgers that moved away from
this bookie.

Leaves freeing the bytes to the storage's cleaning, and the list of deletions to
`metadata.ledgers.deletion_feed`.

Invariants: data of a ledger is removed only after a second, agreed read of its metadata allows it,
made while no add for the ledger reaches the storage; nothing is removed while the metadata service
does not know this bookie, because then it belongs to another cluster; nothing is removed while the
metadata service is older than it was; metadata is read at a limited rate.

Source: protocol rules 1.6, 10.1, 10.2, 10.4, 10.5.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.identity.metadata_age import MetadataAge
from bookie.server.server_context import ServerContext
from bookie.wire.messages import Status
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.deletion_feed import DeletionFeed, DeletionFollower
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS
from metadata.registry.cookies import CookieStore
from metadata.store.interface import MetadataStore

EXPIRED_SHARDS: Final = 2
"""Number of shards of the deletion feed that one pass trims."""
PAGE_LEDGERS: Final = 10_000
"""Number of ledgers that a full pass lists at a time."""
PENDING_IDS_MAX: Final = 100_000
"""Maximum number of deletions from the feed that wait; the full pass finds any others."""


def may_remove(metadata: LedgerMetadata | None, bookie_id: BookieId) -> bool:
    """Return whether a ledger's data may be removed (rule 10.1): the ledger is deleted, or it is
    closed and does not name this bookie.

    An open or recovering ledger may name this bookie at any time.
    """
    if metadata is None:
        return True
    return metadata.state is LedgerState.CLOSED and not metadata.names(bookie_id)


@dataclass(frozen=True, slots=True)
class FeedExpiry:
    """Age, in seconds, at which entries of the deletion feed are removed, and the clock for it."""

    wall_clock_ms: Callable[[], int]
    age_s: float


class Collector:
    """Collector: checks the ledgers in the deletion feed and, in a slow pass, all stored
    ledgers.
    """

    def __init__(
        self,
        context: ServerContext,
        store: MetadataStore,
        ledgers: LedgerStore,
        rng: Random,
        age: MetadataAge,
        *,
        pass_interval_s: float,
        reads_per_s: int,
        expiry: FeedExpiry | None = None,
    ) -> None:
        """Without `expiry`, other bookies trim the deletion feed."""
        self._context = context
        self._ledgers = ledgers
        self._cookies = CookieStore(store)
        self._rng = rng
        self._age = age
        self._pass_interval_s = pass_interval_s
        self._read_interval_s = 1.0 / reads_per_s
        self._feed = DeletionFeed(store)
        self._expiry = expiry
        self._pending: dict[LedgerId, None] = {}
        self._wake = asyncio.Event()
        self._follower = DeletionFollower(store, self._note, rng)

    async def run(self) -> None:
        """Collect until cancelled."""
        self._context.storage.use_feed(self._follower.names)
        self._follower.start()
        try:
            # So that bookies started together do not run full passes at the same time.
            await self._follow_feed(self._pass_interval_s * self._rng.random())
            while True:
                await self._check_all()
                await self._expire_feed()
                await self._age.keep()
                await self._follow_feed(self._pass_interval_s * (0.75 + self._rng.random() / 2))
        finally:
            await self._follower.aclose()

    def _note(self, ledger_id: LedgerId) -> None:
        if len(self._pending) < PENDING_IDS_MAX:
            self._pending[ledger_id] = None
            self._wake.set()

    async def _follow_feed(self, seconds: float) -> None:
        deadline_s = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            ids, self._pending = self._pending, {}
            await self._check_each(await self._context.storage.find_held(list(ids)))

    async def _expire_feed(self) -> None:
        """Remove old entries from EXPIRED_SHARDS shards: all bookies share that work (rule
        10.4).
        """
        if self._expiry is None:
            return
        before_ms = self._expiry.wall_clock_ms() - int(self._expiry.age_s * 1000)
        for shard in self._rng.sample(range(DELETION_SHARDS), EXPIRED_SHARDS):
            try:
                await self._feed.expire(shard, before_ms)
            except MetadataError as error:
                text = "deletion feed not trimmed until the next pass"
                self._context.log.warning(text, reason=str(error))

    async def _check_all(self) -> None:
        after: int | None = -1
        while after is not None:
            page, after = await self._context.storage.list_ledgers(after, PAGE_LEDGERS)
            await self._check_each(page)

    async def _check_each(self, ledger_ids: list[LedgerId]) -> None:
        for ledger_id in ledger_ids:
            try:
                await self.check(ledger_id)
            except MetadataError as error:
                self._context.log.warning(
                    "ledger not checked for deletion until the next pass",
                    ledger=ledger_id,
                    reason=str(error),
                )
            await asyncio.sleep(self._read_interval_s)

    async def check(self, ledger_id: LedgerId) -> bool:
        """Remove a ledger's data if that is allowed; return whether it was removed. Raises
        MetadataError.
        """
        if self._age.went_back:
            return False
        bookie_id, storage = self._context.bookie_id, self._context.storage
        metadata = await self._read(ledger_id, agreed=False)
        if not may_remove(metadata, bookie_id):
            return False
        if metadata is not None and await storage.is_released(ledger_id):
            return False
        with self._context.hold(ledger_id):
            metadata = await self._read(ledger_id, agreed=True)
            if not may_remove(metadata, bookie_id):
                return False
            await self._cookies.get(bookie_id)
            # Last, to detect a service that was restored just before the read above.
            if not await self._age.may_collect():
                return False
            remove = storage.delete_ledger if metadata is None else storage.release_ledger
            status = await remove(ledger_id)
        if status is not Status.OK:
            text = "ledger not removed until the next pass"
            self._context.log.warning(text, ledger=ledger_id, status=status.name.lower())
            return False
        self._context.log.info("ledger removed", ledger=ledger_id)
        return True

    async def _read(self, ledger_id: LedgerId, *, agreed: bool) -> LedgerMetadata | None:
        try:
            metadata, _ = await self._ledgers.get(ledger_id, agreed=agreed)
        except NodeNotFoundError:
            return None
        return metadata
