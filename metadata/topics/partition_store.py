"""Store of the partitions' lists of ledgers: one value per partition, changed by compare-and-set
alone, and chunks for older segments.

Leaves the changes to the partition's leader, and the ledgers to `metadata.ledgers.ledger_store`.

Invariants: segments move into a chunk in one multi with the record that names the chunk; a chunk
never changes; only its token decides a change whose outcome is unknown.

Source: topics design, "The mapping"; protocol rules 1.2-1.3.
"""

import asyncio
import contextlib
from dataclasses import replace
from random import Random

from metadata.backoff import Backoff
from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken, Version
from metadata.paths import PARTITIONS, partition_chunk_path, partition_path, topic_partitions_path
from metadata.store.batching import BatchingStore
from metadata.store.interface import CompareAndSet, Create, MetadataStore, Operation, find
from metadata.store.tree_deletion import drop, drop_tree
from metadata.store.value_changes import until_certain
from metadata.topics.partition import (
    CHUNK_CODEC,
    PARTITION_CODEC,
    PartitionKey,
    PartitionRecord,
    PartitionSegment,
)
from metadata.topics.topic import TopicId

__all__ = ["PartitionKey", "PartitionStore"]


class PartitionStore:
    """Partitions of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._writes = BatchingStore(store)
        self._rng = rng
        self._making_parents = asyncio.Lock()

    async def get_or_create(self, key: PartitionKey) -> tuple[PartitionRecord, Version]:
        """Read a partition with a fresh read; create an empty one if there is none.

        Repeats until there is one. Raises StoreUnavailableError.
        """
        backoff = Backoff(self._rng)
        while True:
            try:
                return await self.get(key)
            except NodeNotFoundError:
                pass
            try:
                return await self._create(key)
            except (NodeExistsError, NodeNotFoundError):
                continue  # created, or all partitions of the topic deleted, concurrently
            except OutcomeUnknownError:
                await asyncio.sleep(backoff.next_s())

    async def get(
        self, key: PartitionKey, *, fresh: bool = True, agreed: bool = False
    ) -> tuple[PartitionRecord, Version]:
        """Read a partition, by default with a fresh read. Raises NodeNotFoundError."""
        path = partition_path(key)
        stored = await self._store.get(path, fresh=fresh, agreed=agreed)
        return PARTITION_CODEC.unpack(path, stored.value), stored.version

    async def topic_ids(self) -> list[TopicId]:
        """Return the ids of all topics whose partitions have lists."""
        prefixes = await self._store.children(PARTITIONS, fresh=True)
        listed = [
            await self._store.children(f"{PARTITIONS}/{prefix}", fresh=True) for prefix in prefixes
        ]
        return [TopicId(bytes.fromhex(digits)) for some in listed for digits in some]

    async def partitions_of(self, topic_id: TopicId) -> list[int]:
        """Return the numbers of the partitions of a topic that have lists, sorted."""
        names = await self._store.children(topic_partitions_path(topic_id), fresh=True)
        return sorted(map(int, names))

    async def compare_and_set(
        self,
        key: PartitionKey,
        record: PartitionRecord,
        expected: Version,
    ) -> tuple[PartitionRecord, Version]:
        """Store a change of the record that was read at `expected`. Return the record as stored and
        its version; if the record had too many segments, older ones are now in a chunk.

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises VersionConflictError when another value was stored,
        NodeNotFoundError when the partition is deleted, StoreUnavailableError when nothing was
        written.
        """
        record, operations = self._operations(key, record, expected)

        async def attempt(unknown_count: int) -> Version:
            if unknown_count:
                version = await self._applied_version(key, record, expected)
                if version is not None:
                    return version  # the old version proves nothing: repeat
            try:
                return await self._write(operations)
            except VersionConflictError:
                version = None
                if unknown_count:  # perhaps by an earlier attempt
                    version = await self._applied_version(key, record, expected)
                if version is None:
                    raise
                return version

        return record, await until_certain(self._rng, attempt)

    async def chunk(self, key: PartitionKey, number: int) -> tuple[PartitionSegment, ...]:
        """Read a chunk of older segments, including segments skipped since. Raises
        NodeNotFoundError if the chunk was dropped.
        """
        path = partition_chunk_path(key, number)
        return CHUNK_CODEC.unpack(path, (await self._store.get(path)).value)

    async def segments(
        self, key: PartitionKey, record: PartitionRecord
    ) -> tuple[PartitionSegment, ...]:
        """Return all segments of a record, including those in chunks, oldest first. Raises
        NodeNotFoundError when a chunk was dropped after the record was read.
        """
        segments: list[PartitionSegment] = []
        for number in range(record.first_chunk, record.next_chunk):
            chunk = await self.chunk(key, number)
            segments += chunk[record.skipped :] if number == record.first_chunk else chunk
        return (*segments, *record.segments)

    async def without_segments_below(
        self, key: PartitionKey, record: PartitionRecord, log_start: int
    ) -> tuple[PartitionRecord, tuple[PartitionSegment, ...]]:
        """Remove the ended segments below an offset from a record, including those in chunks;
        return them too. Writes nothing: call `compare_and_set` next, then `drop_chunks`.
        """
        dropped: list[PartitionSegment] = []
        while record.has_chunks:
            first_chunk = record.first_chunk
            chunk = await self.chunk(key, first_chunk)
            record, some = record.without_chunked_below(chunk, log_start)
            dropped += some
            if record.first_chunk == first_chunk:
                return record, tuple(dropped)
        record, rest = record.without_segments_below(log_start)
        return record, (*dropped, *rest)

    async def drop_chunks(self, key: PartitionKey, record: PartitionRecord) -> None:
        """Delete the chunks that the stored record no longer names."""
        for name in await self._store.children(partition_path(key), fresh=True):
            if int(name) >= record.first_chunk:
                return
            await drop(self._store, partition_chunk_path(key, int(name)), self._rng)

    async def delete(self, key: PartitionKey) -> None:
        """Delete a partition but not its ledgers; complete an interrupted deletion."""
        await drop_tree(self._store, partition_path(key), self._rng)
        above = topic_partitions_path(key.topic_id)
        if await drop(self._store, above, self._rng):
            await drop(self._store, above.rpartition("/")[0], self._rng)

    async def _create(self, key: PartitionKey) -> tuple[PartitionRecord, Version]:
        path = partition_path(key)
        record = PartitionRecord(token=self._token())
        value = PARTITION_CODEC.pack(path, record)
        try:
            return record, await self._store.create(path, value, make_parents=False)
        except NodeNotFoundError:
            await self._make_parents(key)
        return record, await self._store.create(path, value, make_parents=False)

    async def _make_parents(self, key: PartitionKey) -> None:
        """Create the node above a topic's partitions, once for all callers that miss it."""
        path = topic_partitions_path(key.topic_id)
        async with self._making_parents:
            if await find(self._store, path, fresh=False) is None:
                with contextlib.suppress(NodeExistsError):
                    await self._store.create(path, b"")

    def _operations(
        self, key: PartitionKey, record: PartitionRecord, expected: Version
    ) -> tuple[PartitionRecord, list[Operation]]:
        """Return the record to store, and the operations that store it; the record's own operation
        is first.
        """
        path = partition_path(key)
        number = record.next_chunk
        spilled, chunk = replace(record, token=self._token()).spilled()
        operations: list[Operation] = [
            CompareAndSet(path, PARTITION_CODEC.pack(path, spilled), expected)
        ]
        if chunk:
            path = partition_chunk_path(key, number)
            operations.append(Create(path, CHUNK_CODEC.pack(path, chunk)))
        return spilled, operations

    async def _write(self, operations: list[Operation]) -> Version:
        first = operations[0]
        assert isinstance(first, CompareAndSet), "the record's own operation is the first"
        if len(operations) > 1:
            return (await self._store.multi(operations))[0]
        return await self._writes.compare_and_set(first.path, first.value, first.expected)

    async def _applied_version(
        self, key: PartitionKey, record: PartitionRecord, expected: Version
    ) -> Version | None:
        """Return the version of our change if it was applied, None while the old version is still
        there.
        """
        stored, version = await self.get(key)
        if version == expected:
            return None
        if stored.token == record.token:
            return version
        raise VersionConflictError(partition_path(key), expected)

    def _token(self) -> UpdateToken:
        return UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))
