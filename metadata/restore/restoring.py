"""Restore of a dump: checks the complete dump, then writes it into an empty root, in batches.

Leaves the lines of the file to `dump_file.py`, and the changed values to `adjusting.py`.

Invariants: nothing is written before the complete dump was read and is right; the record of the
restore is the first node, and `/instance` the last, in the step that ends the restore; so a restore
that was interrupted leaves no cluster, and is continued by a call with the same dump. A multi has
at most MULTI_OPERATIONS_MAX operations and MULTI_BYTES_MAX bytes; its outcome is decided by reading
each node back. A node is empty until it has its version.

Source: protocol rules 1.3 and 10.6.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    DumpFormatError,
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    RootNotEmptyError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import INSTANCE, RESTORE
from metadata.restore.adjusting import adjusted
from metadata.restore.dump_contents import DumpedNode, root_names
from metadata.restore.dump_file import DumpReader
from metadata.restore.restore_record import (
    RESTORE_NODE,
    TOKEN_BYTES,
    RestoreRecord,
    RestoreState,
    read_restore,
)
from metadata.store.interface import (
    MULTI_BYTES_MAX,
    MULTI_OPERATIONS_MAX,
    CompareAndSet,
    Create,
    MetadataStore,
    Operation,
    Stored,
    find,
    multi_size,
)

ATTEMPTS_MAX: Final = 10
"""Maximum number of attempts to write one node while the store does not answer."""

Write = Create | CompareAndSet


@dataclass(frozen=True, slots=True)
class CheckedDump:
    """What reading a complete dump found."""

    taken_ms: int
    digest: bytes
    node_count: int
    instance: bytes
    """Value of `/instance`."""


def check_dump(name: str, lines: Iterable[bytes]) -> CheckedDump:
    """Read a complete dump, and every value that a restore changes. Raises DumpFormatError,
    MetadataFormatError, NumbersUsedUpError.
    """
    reader = DumpReader(name, lines)
    instance: bytes | None = None
    for node in reader.nodes():
        if adjusted(node).path == INSTANCE:
            instance = node.value
    if instance is None:
        raise DumpFormatError(name, f"it has no {INSTANCE}")
    return CheckedDump(reader.taken_ms, reader.digest, reader.node_count, instance)


class Restorer:
    """Writes one checked dump into one store."""

    def __init__(self, store: MetadataStore, rng: Random, dump: CheckedDump) -> None:
        self._store = store
        self._rng = rng
        self._dump = dump
        self._values: dict[str, bytes] = {}
        """Values, in the end, of the nodes that are written now."""
        self.on_written: Callable[[int], None] = lambda _count: None
        """Called with the number of nodes of each batch that was written."""

    async def restore(self, nodes: Iterable[DumpedNode]) -> RestoreRecord:
        """Write the nodes, and make the root a cluster; continue an interrupted restore of the same
        dump.

        Raises RootNotEmptyError when something else is stored there, StoreUnavailableError when
        the call can be repeated.
        """
        record, version = await self._begin()
        for batch in batches(self._writes(nodes)):
            await self._write(batch)
            # Behind it are writes of its last node, and the first one of the next node.
            self._values = dict(list(self._values.items())[-2:])
            self.on_written(sum(isinstance(write, Create) for write in batch))
        finished = record.with_state(RestoreState.FINISHED)
        await self._finish(finished, version)
        return finished

    async def _begin(self) -> tuple[RestoreRecord, Version]:
        """Create the record, or find that of an interrupted restore of the same dump."""
        names = await root_names(self._store)
        restore = await read_restore(self._store)
        if restore is None:
            if names:
                raise RootNotEmptyError(self._store.address, f"/{names[0]}")
            record = RestoreRecord(
                self._rng.randbytes(TOKEN_BYTES),
                RestoreState.RUNNING,
                self._dump.taken_ms,
                self._dump.digest,
            )
            return record, await self._store.create(RESTORE, RESTORE_NODE.pack(record))
        record, version = restore
        if record.state is not RestoreState.RUNNING:
            raise RootNotEmptyError(self._store.address, INSTANCE)
        if record.digest != self._dump.digest:
            text = f"{RESTORE}, of an interrupted restore of another dump,"
            raise RootNotEmptyError(self._store.address, text)
        return record, version

    async def _finish(self, finished: RestoreRecord, version: Version) -> None:
        """Make the root a cluster; the record decides an unknown outcome."""
        operations: list[Operation] = [
            Create(INSTANCE, self._dump.instance),
            CompareAndSet(RESTORE, RESTORE_NODE.pack(finished), version),
        ]
        backoff = Backoff(self._rng)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                await self._store.multi(operations)
                return
            except (NodeExistsError, VersionConflictError):
                restore = await read_restore(self._store)
                if restore is not None and restore[0] == finished:
                    return
                raise RootNotEmptyError(self._store.address, INSTANCE) from None
            except (OutcomeUnknownError, StoreUnavailableError):
                if attempt == ATTEMPTS_MAX:
                    raise
            await asyncio.sleep(backoff.next_s())

    def _writes(self, nodes: Iterable[DumpedNode]) -> Iterator[Write]:
        for dumped in nodes:
            node = adjusted(dumped)
            if node.path == INSTANCE:
                continue  # last
            self._values[node.path] = node.value
            yield Create(node.path, b"" if node.version else node.value)
            for version in range(node.version):
                is_last = version + 1 == node.version
                value = node.value if is_last else b""
                yield CompareAndSet(node.path, value, Version(version))

    async def _write(self, batch: list[Write]) -> None:
        operations: list[Operation] = list(batch)
        try:
            await self._store.multi(operations)
        except (NodeExistsError, VersionConflictError, OutcomeUnknownError, StoreUnavailableError):
            for write in await self._left_of(batch):
                await self._write_one(write)

    async def _left_of(self, batch: list[Write]) -> list[Write]:
        """Return the writes that no earlier attempt has made for certain, with one read of each
        node: a restore that is continued skips many versions of each.
        """
        nodes: dict[str, Stored | None] = {}
        for path in dict.fromkeys(write.path for write in batch):
            try:
                nodes[path] = await find(self._store, path)
            except StoreUnavailableError:
                return batch
        pairs = [(write, nodes[write.path]) for write in batch]
        return [write for write, node in pairs if node is None or not self._is_in(write, node)]

    async def _write_one(self, write: Write) -> None:
        """Write one node, unless an earlier attempt did."""
        backoff = Backoff(self._rng)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                if not await self._is_written(write):
                    await self._store.multi([write])
                return
            except (NodeExistsError, VersionConflictError, OutcomeUnknownError):
                pass
            except StoreUnavailableError:
                if attempt == ATTEMPTS_MAX:
                    raise
            await asyncio.sleep(backoff.next_s())
        raise MetadataError(
            f"{write.path} could not be written in {ATTEMPTS_MAX} attempts: run the command again "
            "with the same file"
        )

    async def _is_written(self, write: Write) -> bool:
        stored = await find(self._store, write.path)
        if stored is None:
            if isinstance(write, CompareAndSet):
                raise NodeNotFoundError(write.path)
            return False
        return self._is_in(write, stored)

    def _is_in(self, write: Write, stored: Stored) -> bool:
        """Return whether a node shows that a write was made. Raises RootNotEmptyError."""
        if stored.value not in (write.value, self._values[write.path]):
            raise RootNotEmptyError(self._store.address, f"{write.path}, with another value,")
        return isinstance(write, Create) or stored.version > write.expected


def batches(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """Group operations into multis within the store's limits, in their order."""
    batch: list[Write] = []
    size = 0
    for write in writes:
        added = multi_size([write])
        if batch and (len(batch) == MULTI_OPERATIONS_MAX or size + added > MULTI_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += added
    if batch:
        yield batch
