"""Records of one kind: one node for each key, changed by compare-and-set, and followed.

Leaves a record and its bytes to `metadata.records`.

Invariants: a change is computed from the record that its write replaces; a new read decides a write
with an unknown outcome. A view keeps what it has while the store does not answer, drops a record
only when a successful read shows that it is gone, and keeps the last readable form of a record that
it cannot read unless the kind says otherwise.

Source: protocol rules 1.2-1.4 and 1.6.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from metadata.callbacks import Callbacks
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId, Version, is_bookie_id
from metadata.records import Codec
from metadata.store.child_values import READS_AT_ONCE_MAX, ChildValues
from metadata.store.followed_value import FollowedValue
from metadata.store.interface import Cancel, MetadataStore, find
from metadata.store.value_changes import change_node

Key = TypeVar("Key")
Record = TypeVar("Record")


@dataclass(frozen=True)
class RecordNode(Generic[Record]):
    """A node that holds one record."""

    path: str
    codec: Codec[Record]
    given: Mapping[str, object] = field(default_factory=dict)
    """Fields of the record that the path says."""

    def pack(self, record: Record) -> bytes:
        """Return the node's value. Raises MetadataFormatError."""
        return self.codec.pack(self.path, record)

    def unpack(self, value: bytes) -> Record:
        """Read the node's value. Raises MetadataFormatError."""
        return self.codec.unpack(self.path, value, **self.given)

    async def find(self, store: MetadataStore, *, agreed: bool = False) -> Record | None:
        """Read the record with a fresh or an agreed read. Raises MetadataError."""
        stored = await find(store, self.path, agreed=agreed)
        return None if stored is None else self.unpack(stored.value)

    async def read(self, store: MetadataStore) -> tuple[Record, Version] | None:
        """Read the record and its version with a fresh read; None if there is no node. Raises
        MetadataError.
        """
        stored = await find(store, self.path)
        return None if stored is None else (self.unpack(stored.value), stored.version)

    async def change(
        self, store: MetadataStore, rng: Random, change: Callable[[Record | None], Record]
    ) -> Record:
        """Change or create the record; return it as stored. Raises as `change_node`."""

        def changed(value: bytes | None) -> bytes:
            return self.pack(change(None if value is None else self.unpack(value)))

        value = await change_node(store, self.path, changed, rng)
        assert value is not None, "the change returns a record"
        return self.unpack(value)


@dataclass(frozen=True)
class NodeNames(Generic[Key]):
    """Names of the nodes of some keys."""

    of: Callable[[Key], str]
    key: Callable[[str], Key | None]
    """Returns the key of a node; None for a name that no key has."""


BOOKIES_BY_ID: Final = NodeNames[BookieId](
    str, lambda name: BookieId(name) if is_bookie_id(name) else None
)


@dataclass(frozen=True)
class RecordKind(Generic[Key, Record]):
    """Where the records of one kind are, and how they are stored."""

    parent: str
    names: NodeNames[Key]
    codec: Codec[Record]
    key_field: str = ""
    """The record's field that is its key, which is not stored in the value; empty if none is."""
    unreadable: Callable[[MetadataFormatError], Record] | None = None
    """Returns what stands for a record that cannot be read; without it, the read fails."""
    keeps_readable: bool = True
    """Whether a view keeps the last readable form of a record that becomes unreadable."""
    too_many: Callable[[int], MetadataError] | None = None

    def path(self, key: Key) -> str:
        """Return the path of a record."""
        return f"{self.parent}/{self.names.of(key)}"

    def node(self, key: Key) -> RecordNode[Record]:
        """Return the node of a record."""
        given = {self.key_field: key} if self.key_field else {}
        return RecordNode(self.path(key), self.codec, given)

    def read(self, key: Key, value: bytes) -> Record:
        """Read a record, or what stands for it. Raises MetadataFormatError if nothing does."""
        try:
            return self.node(key).unpack(value)
        except MetadataFormatError as error:
            if self.unreadable is None:
                raise
            return self.unreadable(error)


class RecordStore(Generic[Key, Record]):
    """Records of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(
        self,
        kind: RecordKind[Key, Record],
        store: MetadataStore,
        rng: Random,
        count_max: int | None = None,
    ) -> None:
        self._kind = kind
        self._store = store
        self._rng = rng
        self._count_max = count_max

    async def find(self, key: Key, *, agreed: bool = False) -> Record | None:
        """Read a record with a fresh or an agreed read. Raises MetadataError."""
        stored = await find(self._store, self._kind.path(key), agreed=agreed)
        return None if stored is None else self._kind.read(key, stored.value)

    async def keys(self) -> list[Key]:
        """Return the keys of all records, in the order of their nodes, with a fresh read."""
        names = sorted(await self._store.children(self._kind.parent, fresh=True))
        return [key for key in map(self._kind.names.key, names) if key is not None]

    async def pages(self) -> AsyncIterator[list[Record]]:
        """Yield all records in the order of their nodes, at most READS_AT_ONCE_MAX at once, with
        fresh reads. One that is created or removed meanwhile is in it or is not. Raises
        MetadataError.
        """
        async for page in self._pages():
            yield [record for _, record in page]

    async def get_all(self) -> dict[Key, Record]:
        """Read all records as `pages` yields them. Raises MetadataError."""
        return {key: record async for page in self._pages() for key, record in page}

    async def _pages(self) -> AsyncIterator[list[tuple[Key, Record]]]:
        keys = await self.keys()
        for start in range(0, len(keys), READS_AT_ONCE_MAX):
            some = keys[start : start + READS_AT_ONCE_MAX]
            page = await asyncio.gather(*map(self.find, some))
            yield [
                (key, record) for key, record in zip(some, page, strict=True) if record is not None
            ]

    async def update(
        self, key: Key, change: Callable[[Record | None], Record | None]
    ) -> Record | None:
        """Change, create or remove a record; return it as stored. None is a record that is not
        there.

        Raises what `change` raises, the kind's error when there are too many records, and as
        `until_certain`.
        """
        kind, node = self._kind, self._kind.node(key)

        def changed(value: bytes | None) -> bytes | None:
            wanted = change(None if value is None else kind.read(key, value))
            return None if wanted is None else node.pack(wanted)

        value = await change_node(
            self._store, node.path, changed, self._rng, check_room=self._check_count
        )
        return None if value is None else node.unpack(value)

    async def check_room(self, key: Key) -> None:
        """Check that this record could be stored now. Raises the kind's error, MetadataError."""
        if await find(self._store, self._kind.path(key)) is None:
            await self._check_count()

    async def _check_count(self) -> None:
        limit, too_many = self._count_max, self._kind.too_many
        if limit is None or too_many is None:
            return
        if len(await self._store.children(self._kind.parent, fresh=True)) >= limit:
            raise too_many(limit)


class ChildView(Generic[Key, Record]):
    """What is read from the nodes below one, kept up to date until `aclose`."""

    def __init__(
        self,
        store: MetadataStore,
        parent: str,
        names: NodeNames[Key],
        read: Callable[[Key, bytes], Record],
        rng: Random,
        *,
        jitter_s: float = 0.0,
    ) -> None:
        """`read` raises MetadataFormatError for a value that the view ignores."""
        self._names = names
        self._read = read
        self._keys: dict[str, Key] = {}
        self._records: dict[Key, Record] = {}
        self._callbacks = Callbacks[Key, Record | None, Record | None]()
        self._values = ChildValues(
            store, parent, rng, on_value=self._put, on_gone=self._drop, jitter_s=jitter_s
        )

    @property
    def records(self) -> Mapping[Key, Record]:
        """The records as last read."""
        return MappingProxyType(self._records)

    def on_record(self, callback: Callable[[Key, Record | None, Record | None], None]) -> Cancel:
        """Call `callback` after `records` shows a change, with the key, the record before, and the
        record after. A record that does not exist is None.
        """
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every record, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current records, including those whose read is delayed. For a caller that would
        otherwise fail because it finds too few. Raises MetadataError.
        """
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `records` keeps the last known ones."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        key = self._names.key(name)
        if key is None:
            return
        before, record = self._records.get(key), self._read(key, value)
        if before != record:
            self._keys[name] = key
            self._records[key] = record
            self._callbacks.notify(key, before, record)

    def _drop(self, name: str) -> None:
        key = self._keys.pop(name, None)
        if key is not None:
            self._callbacks.notify(key, self._records.pop(key), None)


class RecordView(ChildView[Key, Record]):
    """Records of one kind in memory, kept up to date until `aclose`."""

    def __init__(self, kind: RecordKind[Key, Record], store: MetadataStore, rng: Random) -> None:
        super().__init__(store, kind.parent, kind.names, self._read_record, rng)
        self._kind = kind

    def on_change(self, callback: Callable[[Key], None]) -> Cancel:
        """Call back with the key after each change, once `records` shows it."""
        return self.on_record(lambda key, _before, _after: callback(key))

    def _read_record(self, key: Key, value: bytes) -> Record:
        is_kept = key in self._records and self._kind.keeps_readable
        return self._kind.node(key).unpack(value) if is_kept else self._kind.read(key, value)


class FollowedRecord(Generic[Record]):
    """The record of one node, kept up to date until `aclose`."""

    def __init__(
        self, node: RecordNode[Record], absent: Record, store: MetadataStore, rng: Random
    ) -> None:
        """`absent` is the record while there is no node."""
        self._node = node
        self._absent = absent
        self._record = absent
        self._callbacks = Callbacks[()]()
        self._value = FollowedValue(store, node.path, rng, on_value=self._put)

    @property
    def record(self) -> Record:
        """The record as last read."""
        return self._record

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `record` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read the record, and keep it up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._value.start()

    async def aclose(self) -> None:
        """Stop following; `record` keeps the last known one."""
        await self._value.aclose()

    def _put(self, value: bytes | None) -> None:
        record = self._absent if value is None else self._node.unpack(value)
        if record != self._record:
            self._record = record
            self._callbacks.notify()
