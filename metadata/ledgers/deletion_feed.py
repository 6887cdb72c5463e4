"""Feed of deleted ledgers, so that bookies need not list all ledgers to collect garbage.

Leaves the second read before anything is removed (rule 10.1) to the bookie, and the deletion itself
to `ledger_store.py`.

One node per deleted ledger, in the shard `ledger id mod 64`, named by its id, holds the wall clock
at the deletion.

Invariants: an entry is written in the same step that removes the ledger; a follower receives every
entry at least once, including entries that existed when it began and entries written while it had
no connection.

Source: protocol rule 10.1; metadata design, "Deletion".
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import LedgerId, is_ledger_id
from metadata.paths import DELETION_SHARDS, deletion_path, deletion_shard_path
from metadata.records import codec_of_one, whole
from metadata.store.interface import Cancel, Create, MetadataStore

SHARD_INTERVAL_S: Final = 1.0
ENTRIES_PER_S_MAX: Final = 1_000
"""Rate of the entries of one shard that a follower lists again at most: a change lists the whole
shard, which may hold tens of thousands.
"""
CHECKED_IDS_MAX: Final = 10_000
"""Maximum number of entries that one call of `expire` checks."""
DELETION_CODEC: Final = codec_of_one("deleted_ms", whole(unit="ms"))


def deletion_of(ledger_id: LedgerId, now_ms: int) -> Create:
    """Return the operation that records a deletion, for the multi that removes the ledger."""
    path = deletion_path(ledger_id)
    return Create(path, DELETION_CODEC.pack(path, now_ms))


class DeletionFeed:
    """Deletions of a cluster that have not expired."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def entries(self, shard: int) -> list[LedgerId]:
        """Return the deleted ledgers recorded in one of the DELETION_SHARDS shards,
        sorted by id.
        """
        return ids_of(await self.names(shard))

    async def names(self, shard: int) -> list[str]:
        """Return the names of the nodes of one shard."""
        return await self._store.children(deletion_shard_path(shard), fresh=True)

    async def expire(self, shard: int, before_ms: int) -> int:
        """Remove a shard's entries of deletions before a time, and return how many. Checks at most
        the CHECKED_IDS_MAX lowest ids.

        The feed is a hint: a bookie that misses an entry finds the deletion in its next pass over
        its own ledgers (rule 10.4).
        """
        count = 0
        for ledger_id in (await self.entries(shard))[:CHECKED_IDS_MAX]:
            path = deletion_path(ledger_id)
            try:
                stored = await self._store.get(path)
                if DELETION_CODEC.unpack(path, stored.value) < before_ms:
                    await self._store.delete(path, stored.version)
                    count += 1
            except (NodeNotFoundError, VersionConflictError, MetadataFormatError):
                continue  # expired by another at the same time, or of a later release
        return count


class DeletionFollower:
    """Calls back once with each ledger in the feed, including those recorded before the start.

    A shard is read at most once per `interval_s`, and a large one less often (ENTRIES_PER_S_MAX),
    so that several changes are read together.
    """

    def __init__(
        self,
        store: MetadataStore,
        callback: Callable[[LedgerId], None],
        rng: Random,
        *,
        interval_s: float = SHARD_INTERVAL_S,
    ) -> None:
        self._store = store
        self._feed = DeletionFeed(store)
        self._callback = callback
        self._rng = rng
        self._interval_s = interval_s
        self._known: list[dict[str, None]] = [{} for _ in range(DELETION_SHARDS)]
        self._cancels: list[Cancel] = []
        self._changed = [asyncio.Event() for _ in range(DELETION_SHARDS)]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Follow the feed until `aclose`."""
        assert not self._tasks, "started once"
        loop = asyncio.get_running_loop()
        for shard in range(DELETION_SHARDS):
            event = self._changed[shard]
            event.set()
            self._cancels.append(self._store.watch_children(deletion_shard_path(shard), event.set))
            self._tasks.append(loop.create_task(self._follow(shard)))

    def names(self, ledger_id: int) -> bool:
        """Return whether the feed had an entry for a ledger when it was read last."""
        return str(ledger_id) in self._known[ledger_id % DELETION_SHARDS]

    async def aclose(self) -> None:
        """Stop following."""
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(*self._tasks)

    async def _follow(self, shard: int) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._changed[shard].wait()
            self._changed[shard].clear()
            try:
                names = await self._feed.names(shard)
            except MetadataError as error:
                if not error.retriable:
                    return  # the store is closed
                self._changed[shard].set()
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.count = 0
            known = self._known[shard]
            self._known[shard] = dict.fromkeys(names)
            for ledger_id in ids_of(name for name in names if name not in known):
                self._callback(ledger_id)
            pause_s = max(self._interval_s, len(names) / ENTRIES_PER_S_MAX)
            await asyncio.sleep(pause_s * (0.5 + self._rng.random()))


def ids_of(names: Iterable[str]) -> list[LedgerId]:
    """Return the ledgers that nodes of a shard name, sorted by id."""
    return sorted(ledger_id for name in names if (ledger_id := _id_of(name)) is not None)


def _id_of(name: str) -> LedgerId | None:
    if not (name.isascii() and name.isdigit()):
        return None
    value = int(name)
    return LedgerId(value) if is_ledger_id(value) else None
