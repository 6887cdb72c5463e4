"""Removal of the data of deleted ledgers, and of the entries of closed ledgers that moved away from
this bookie.

Leaves freeing the bytes to the storage's cleaning, and the list of deletions to
`metadata.ledgers.deletion_feed`.

Invariants: data of a ledger is removed only after a second, agreed read of its metadata allows it,
made while no add for the ledger reaches the storage; nothing is removed while the metadata service
does not know this bookie, because then it belongs to another cluster; nothing is removed while the
metadata service is older than it was; metadata is read at a limited rate; what the feed names does
not wait for the end of a pass, and what could not be removed is tried again.

Source: protocol rules 1.6, 10.1, 10.2, 10.4, 10.5.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from bookie.identity.metadata_age import MetadataAge
from bookie.server.server_context import ServerContext
from bookie.wire.messages import Status
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
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
BATCH_LEDGERS: Final = 1_000
"""Maximum number of ledgers that are checked and removed together."""
FEED_LEDGERS_PER_S: Final = 2_000
"""Maximum rate at which ledgers of the feed that are stored here are checked."""
RETRY_S: Final = 5.0
"""Time after which ledgers that the feed names and that could not be removed are tried again."""


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
    """Collector: checks the ledgers in the deletion feed and, in a slow pass beside that, all
    stored ledgers.
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
        """`reads_per_s` limits the pass. Without `expiry`, other bookies trim the deletion feed."""
        self._context = context
        self._ledgers = ledgers
        self._cookies = CookieStore(store)
        self._rng = rng
        self._age = age
        self._pass_interval_s = pass_interval_s
        self._reads_per_s = reads_per_s
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
        """Check what the feed names, for some time, and at least one batch of what waits."""
        now = asyncio.get_running_loop().time
        deadline_s = now() + seconds
        while True:
            until_s = min(deadline_s, now() + RETRY_S) if self._pending else deadline_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._wake.wait()
            self._wake.clear()
            if self._pending:
                await self._check_pending()
            if now() >= deadline_s:
                return

    async def _check_pending(self) -> None:
        """Check one batch of what the feed names; what could not be removed waits again."""
        batch = list(islice(self._pending, BATCH_LEDGERS))
        for ledger_id in batch:
            del self._pending[ledger_id]
        held = await self._context.storage.find_held(batch)
        left = await self._check_part(held)
        if left:
            self._pending.update(dict.fromkeys(left))
        elif self._pending:
            self._wake.set()
        await asyncio.sleep(len(held) / FEED_LEDGERS_PER_S)

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
        """Check all stored ledgers, in slices of at most a second of reads; the feed goes first."""
        slice_ledgers = min(self._reads_per_s, BATCH_LEDGERS)
        after: int | None = -1
        while after is not None:
            page, after = await self._context.storage.list_ledgers(after, PAGE_LEDGERS)
            for start in range(0, len(page), slice_ledgers):
                part = page[start : start + slice_ledgers]
                await self._check_part(part)
                await self._follow_feed(len(part) / self._reads_per_s)

    async def _check_part(self, ledger_ids: Sequence[LedgerId]) -> Sequence[LedgerId]:
        """Check some ledgers; return those that are to be tried again."""
        try:
            _, refused = await self.check(ledger_ids)
        except MetadataError as error:
            text = "ledgers not checked for deletion, they are tried again later"
            self._context.log.warning(text, ledgers=len(ledger_ids), reason=str(error))
            return ledger_ids
        return refused

    async def check(self, ledger_ids: Sequence[LedgerId]) -> tuple[list[LedgerId], list[LedgerId]]:
        """Remove the data of ledgers, at most BATCH_LEDGERS, where that is allowed. Return those
        that were removed, and those whose removal the storage refused. Durable on return. Raises
        MetadataError.
        """
        if self._age.went_back:
            return [], []
        storage, removable = self._context.storage, await self._removable(ledger_ids, agreed=False)
        wanted = [
            ledger_id
            for ledger_id, is_gone in removable.items()
            if is_gone or not await storage.is_released(ledger_id)
        ]
        with contextlib.ExitStack() as held:
            for ledger_id in wanted:
                held.enter_context(self._context.hold(ledger_id))
            removable = await self._removable(wanted, agreed=True)
            if not removable:
                return [], []
            await self._cookies.get(self._context.bookie_id)
            # Last, to detect a service that was restored just before the read above.
            if not await self._age.may_collect():
                return [], []
            statuses = await self._remove(removable)
        return self._report(statuses, removable)

    async def _remove(self, removable: dict[LedgerId, bool]) -> dict[LedgerId, Status]:
        """Remove ledgers; True: it is gone, False: it moved away. Return the storage's answers."""
        storage = self._context.storage
        gone = [ledger_id for ledger_id, is_gone in removable.items() if is_gone]
        # The log syncs the records of deletions that are queued together once.
        deleted = await asyncio.gather(*map(storage.delete_ledger, gone))
        moved = [ledger_id for ledger_id, is_gone in removable.items() if not is_gone]
        released = await storage.release_ledgers(moved)
        return dict(zip(gone, deleted, strict=True)) | released

    def _report(
        self, statuses: dict[LedgerId, Status], gone: dict[LedgerId, bool]
    ) -> tuple[list[LedgerId], list[LedgerId]]:
        removed: list[LedgerId] = []
        refused: list[LedgerId] = []
        for ledger_id, status in statuses.items():
            if status is Status.OK:
                removed.append(ledger_id)
                if gone[ledger_id]:
                    self._context.log.info("deleted ledger removed", ledger=ledger_id)
                else:
                    self._context.log.info("surplus copy removed", ledger=ledger_id)
            else:
                refused.append(ledger_id)
        if refused:
            first = refused[0]
            text = "ledgers not removed, they are tried again later"
            self._context.log.warning(
                text, ledgers=len(refused), first=first, status=statuses[first].name.lower()
            )
        return removed, refused

    async def _removable(
        self, ledger_ids: Sequence[LedgerId], *, agreed: bool
    ) -> dict[LedgerId, bool]:
        """Return the ledgers whose data may be removed; True: the ledger is gone, False: it moved
        away. One agreed read is enough: no later read of this client is older (rule 1.6).
        """
        if not ledger_ids:
            return {}
        first = await self._read(ledger_ids[0], agreed=agreed)
        others = await asyncio.gather(*map(self._read, ledger_ids[1:]))
        pairs = zip(ledger_ids, (first, *others), strict=True)
        return {ledger_id: is_gone for ledger_id, is_gone in pairs if is_gone is not None}

    async def _read(self, ledger_id: LedgerId, *, agreed: bool = False) -> bool | None:
        """Return whether a ledger whose data may be removed is gone; None: it must stay."""
        try:
            metadata, _ = await self._ledgers.get(ledger_id, agreed=agreed)
        except NodeNotFoundError:
            metadata = None
        except MetadataFormatError as error:
            text = "ledger not checked for deletion until the next pass"
            self._context.log.warning(text, ledger=ledger_id, reason=str(error))
            return None
        return metadata is None if may_remove(metadata, self._context.bookie_id) else None
