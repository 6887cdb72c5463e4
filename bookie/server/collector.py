"""Removes the data of ledgers that were deleted, and the entries of closed ones that moved away
from this bookie.

Leaves freeing the bytes to the storage's cleaning, and telling of deletions to
`metadata.ledgers.deletion_feed`.

Invariants: nothing is removed before a fresh second read of that one ledger's metadata, made while
no add reaches the storage for it, said that it may be; nothing is removed while the metadata
service does not know this bookie, because then it is not the one that its ledgers are in; nothing
is removed on the word of a metadata service that is older than it was; metadata is read at a
bounded rate.

Source: protocol rules 10.1, 10.2, 10.4, 10.5.
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
"""Shards of the deletion feed that one pass trims."""
PAGE_LEDGERS: Final = 10_000
"""Ledgers that a full pass lists at a time."""
NEWS_MAX: Final = 100_000
"""Deletions told and not yet looked at; those beyond it are found by the pass over all ledgers."""


def may_remove(metadata: LedgerMetadata | None, bookie_id: BookieId) -> bool:
    """Return whether a ledger's data may go (rule 10.1): it is gone, or closed and nowhere names
    this bookie.

    An open or recovering ledger may come to name it at any time.
    """
    if metadata is None:
        return True
    return metadata.state is LedgerState.CLOSED and not metadata.names(bookie_id)


@dataclass(frozen=True, slots=True)
class FeedExpiry:
    """When entries of the deletion feed have served their purpose."""

    wall_clock_ms: Callable[[], int]
    age_s: float


class Collector:
    """Looks at ledgers that the deletion feed tells of, and in turn at all that are held."""

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
        """Without `expiry`, the deletion feed is left to other bookies."""
        self._context = context
        self._ledgers = ledgers
        self._cookies = CookieStore(store)
        self._rng = rng
        self._age = age
        self._pass_interval_s = pass_interval_s
        self._read_interval_s = 1.0 / reads_per_s
        self._feed = DeletionFeed(store)
        self._expiry = expiry
        self._news: dict[LedgerId, None] = {}
        self._wake = asyncio.Event()
        self._follower = DeletionFollower(store, self._note, rng)
        self.removed_count = 0
        self.passes_ended = 0

    async def run(self) -> None:
        """Collect until cancelled."""
        self._follower.start()
        try:
            # Bookies that start together do not read everything together.
            await self._follow_news(self._pass_interval_s * self._rng.random())
            while True:
                await self._look_at_all()
                self.passes_ended += 1
                await self._expire_feed()
                await self._age.keep()
                await self._follow_news(self._pass_interval_s * (0.75 + self._rng.random() / 2))
        finally:
            await self._follower.aclose()

    def _note(self, ledger_id: LedgerId) -> None:
        if len(self._news) < NEWS_MAX:
            self._news[ledger_id] = None
            self._wake.set()

    async def _follow_news(self, seconds: float) -> None:
        deadline_s = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            news, self._news = self._news, {}
            await self._look_at(await self._context.storage.find_held(list(news)))

    async def _expire_feed(self) -> None:
        """Remove old entries from a few shards: many bookies share that work (rule 10.4)."""
        if self._expiry is None:
            return
        before_ms = self._expiry.wall_clock_ms() - int(self._expiry.age_s * 1000)
        for shard in self._rng.sample(range(DELETION_SHARDS), EXPIRED_SHARDS):
            try:
                await self._feed.expire(shard, before_ms)
            except MetadataError as error:
                self._context.log.warning("deletion feed not trimmed", reason=str(error))

    async def _look_at_all(self) -> None:
        after: int | None = -1
        while after is not None:
            page, after = await self._context.storage.list_ledgers(after, PAGE_LEDGERS)
            await self._look_at(page)

    async def _look_at(self, ledger_ids: list[LedgerId]) -> None:
        for ledger_id in ledger_ids:
            try:
                await self.look_at(ledger_id)
            except MetadataError as error:
                # Not now: the next pass comes here again.
                self._context.log.warning(
                    "ledger not checked for deletion", ledger=ledger_id, reason=str(error)
                )
            await asyncio.sleep(self._read_interval_s)

    async def look_at(self, ledger_id: LedgerId) -> bool:
        """Remove a ledger's data if it may go; return whether it went. Raises MetadataError."""
        if self._age.went_back:
            return False
        bookie_id, storage = self._context.bookie_id, self._context.storage
        metadata = await self._read(ledger_id, fresh=False)
        if not may_remove(metadata, bookie_id):
            return False
        if metadata is not None and await storage.is_released(ledger_id):
            return False
        with self._context.hold(ledger_id):
            metadata = await self._read(ledger_id, fresh=True)
            if not may_remove(metadata, bookie_id):
                return False
            await self._cookies.get(bookie_id)
            # Last: a service that was restored just before the read above shows here.
            if not await self._age.may_collect():
                return False
            remove = storage.delete_ledger if metadata is None else storage.release_ledger
            status = await remove(ledger_id)
        if status is not Status.OK:
            self._context.log.warning(
                "ledger not removed", ledger=ledger_id, status=status.name.lower()
            )
            return False
        self.removed_count += 1
        self._context.log.info("ledger removed", ledger=ledger_id)
        return True

    async def _read(self, ledger_id: LedgerId, *, fresh: bool) -> LedgerMetadata | None:
        try:
            metadata, _ = await self._ledgers.get(ledger_id, fresh=fresh)
        except NodeNotFoundError:
            return None
        return metadata
