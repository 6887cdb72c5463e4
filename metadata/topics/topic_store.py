"""Store of a cluster's topics: one value per topic, changed by compare-and-set alone.

Leaves the changes to the controller, and the ledgers of partitions to
`metadata.topics.partition_store`.

Invariants: the token decides a change whose outcome is unknown, the topic's id a creation; the node
of a deleted topic stays, so that leader epochs of its name are never used again; no two topics have
equivalent names (`metadata.topics.topic_names`).

Source: topics design, "The mapping", "What a takeover does"; protocol rules 1.2-1.3.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicExistsError,
    TopicNotFoundError,
    VersionConflictError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken, Version
from metadata.paths import TOPIC_NAMES, TOPICS, topic_path
from metadata.store.batching import BatchingStore
from metadata.store.interface import (
    Cancel,
    CompareAndSet,
    Create,
    MetadataStore,
    Operation,
    WatchCallback,
    find,
)
from metadata.store.value_changes import ATTEMPTS_MAX, until_certain
from metadata.topics.topic import TOPIC_CODEC, TopicId, TopicRecord, check_topic_name, pack_topic
from metadata.topics.topic_names import TopicNames

CHANGES_AT_ONCE_MAX: Final = 1_000

TopicChange = Callable[[TopicRecord], TopicRecord | None]
"""Function that returns the wanted record, or None if the given one needs no change. It is called
again after a conflicting change, so its result must depend on the given record.
"""


class TopicStore:
    """Topics of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._writes = BatchingStore(store)
        self._rng = rng
        self._names = TopicNames(store, self._is_there)

    async def create(self, record: TopicRecord) -> TopicRecord:
        """Store a new topic. Return it as stored, with its leader epochs above those of earlier
        topics with its name.

        Repeats until the outcome is certain or the call is cancelled. Raises TopicExistsError, also
        while an earlier topic with the name is being deleted; TopicNameHeldError;
        StoreUnavailableError when nothing was written.
        """
        path = topic_path(check_topic_name(record.name))
        record = replace(record, token=self._token())

        async def attempt(_unknown_count: int) -> TopicRecord:
            try:
                await self._create_first(path, pack_topic(path, record), record.name)
            except NodeExistsError:
                return await self._create_again(record)
            return record

        # Another change, or an equivalent name, may come first: then it is read again.
        again = (NodeNotFoundError, TopicNotFoundError, VersionConflictError)
        return await until_certain(self._rng, attempt, again=again, what=f"topic {record.name!r}")

    async def get(self, name: str, *, fresh: bool = False) -> tuple[TopicRecord, Version]:
        """Read a topic, including one that is being deleted. With `fresh`, the result includes
        every change that ended before the call. Raises TopicNotFoundError.
        """
        record, version = await self._read(name, fresh=fresh)
        if record.is_tombstone:
            raise TopicNotFoundError(name)
        return record, version

    async def change(self, name: str, change: TopicChange) -> TopicRecord:
        """Change a topic by compare-and-set, whatever its version, until the outcome is certain;
        return the new record.

        A cancelled call may have been applied, or may still be. Raises TopicNotFoundError,
        ValueTooLargeError, and StoreUnavailableError when nothing was written.
        """
        path, token, backoff = topic_path(name), self._token(), Backoff(self._rng)
        is_fresh = is_unknown = False
        for _ in range(ATTEMPTS_MAX):
            try:
                record, version = await self.get(name, fresh=is_fresh)
                if record.token == token:
                    return record
                wanted = change(record)
                if wanted is not None:
                    wanted = replace(wanted, token=token)
                    await self._writes.compare_and_set(path, pack_topic(path, wanted), version)
                    return wanted
                if is_fresh:
                    return record
                is_fresh = True  # the record may be old: read it again before skipping the change
                continue
            except StoreUnavailableError:
                if not is_unknown:
                    raise
            except OutcomeUnknownError:
                is_unknown = True
            except TopicNotFoundError:
                if is_fresh:
                    raise
            except (VersionConflictError, NodeNotFoundError):
                pass
            is_fresh = True
            await asyncio.sleep(backoff.next_s())
        raise MetadataError(
            f"topic {name!r} kept changing during {ATTEMPTS_MAX} attempts: try again"
        )

    async def change_many(self, changes: Mapping[str, TopicChange]) -> dict[str, TopicRecord]:
        """Change many topics, each as `change` does, with many changes in one write. Return the new
        records, without topics that do not exist.

        After all changes have ended, raises the first other failure; the remaining topics may have
        been changed.
        """
        records: dict[str, TopicRecord] = {}
        failures: list[BaseException] = []
        names = list(changes)
        for start in range(0, len(names), CHANGES_AT_ONCE_MAX):
            some = names[start : start + CHANGES_AT_ONCE_MAX]
            results = await asyncio.gather(
                *[self.change(name, changes[name]) for name in some], return_exceptions=True
            )
            for name, result in zip(some, results, strict=True):
                if isinstance(result, TopicRecord):
                    records[name] = result
                elif not isinstance(result, TopicNotFoundError):
                    failures.append(result)
            if failures:
                raise failures[0]
        return records

    async def finish_deletion(self, name: str, topic_id: TopicId) -> None:
        """Replace a deleted topic whose ledgers are gone with a tombstone. Does nothing if the
        tombstone exists already, or if the name belongs to another topic now.
        """

        def make_tombstone(record: TopicRecord) -> TopicRecord | None:
            is_it = record.is_deleted and record.topic_id == topic_id
            return record.as_tombstone() if is_it else None

        with contextlib.suppress(TopicNotFoundError):
            await self.change(name, make_tombstone)

    async def names(self) -> list[str]:
        """Return the names of all topics, sorted, including deleted topics and tombstones."""
        return await self._store.children(TOPICS, fresh=True)

    async def topic_ids(self) -> set[TopicId]:
        """Return the ids of all topics, including deleted ones, with fresh reads. Raises
        MetadataError, also if one record cannot be read.
        """
        ids: set[TopicId] = set()
        names = await self.names()
        for start in range(0, len(names), CHANGES_AT_ONCE_MAX):
            some = names[start : start + CHANGES_AT_ONCE_MAX]
            records = await asyncio.gather(*[self._read(name, fresh=True) for name in some])
            ids.update(record.topic_id for record, _ in records if not record.is_tombstone)
        return ids

    def watch_names(self, callback: WatchCallback) -> Cancel:
        """Call back after each new name; as `MetadataStore.watch_children`."""
        return self._store.watch_children(TOPICS, callback)

    def watch(self, name: str, callback: WatchCallback) -> Cancel:
        """Call back after each change of a topic; as `MetadataStore.watch_value`."""
        return self._store.watch_value(topic_path(check_topic_name(name)), callback)

    async def _create_first(self, path: str, value: bytes, name: str) -> None:
        """Create a topic's node. Raises NodeExistsError if it exists, or if its name is being taken
        concurrently.
        """
        taking = await self._names.taking(name)
        if not taking:
            await self._store.create(path, value)
            return
        await self._write([Create(path, value), *taking])

    async def _create_again(self, record: TopicRecord) -> TopicRecord:
        """Replace a tombstone with the topic, or return the topic if it exists already."""
        stored, version = await self._read(record.name, fresh=True)
        if stored.topic_id == record.topic_id and not stored.is_deleted:
            return stored  # an earlier attempt of this call, whose answer was lost
        if not stored.is_tombstone or stored.topic_id == record.topic_id:
            raise TopicExistsError(record.name, is_being_deleted=stored.is_deleted)
        path, lifted = topic_path(record.name), record.above(stored.epoch_floor)
        taking = await self._names.taking(record.name)
        await self._write([CompareAndSet(path, pack_topic(path, lifted), version), *taking])
        return lifted

    async def _write(self, operations: list[Operation]) -> None:
        """Create a topic. Creates missing parents of the multi's nodes: an older cluster with
        topics may have no node for their names.
        """
        try:
            await self._store.multi(operations)
        except NodeNotFoundError:
            for parent in (TOPICS, TOPIC_NAMES):
                with contextlib.suppress(NodeExistsError):
                    await self._store.create(parent, b"")
            await self._store.multi(operations)

    async def _is_there(self, name: str) -> bool:
        try:
            record, _ = await self._read(name, fresh=True)
        except TopicNotFoundError:
            return False
        return not record.is_deleted

    async def _read(self, name: str, *, fresh: bool) -> tuple[TopicRecord, Version]:
        path = topic_path(check_topic_name(name))
        stored = await find(self._store, path, fresh=fresh)
        if stored is None:
            raise TopicNotFoundError(name)
        return TOPIC_CODEC.unpack(path, stored.value), stored.version

    def _token(self) -> UpdateToken:
        return UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))
