"""Bindings of access control lists in the store: added, removed, listed and followed.

Leaves the bindings to `acls.py`.

Invariants: a change of one shard keeps the bindings that it does not name; a view keeps the last
known bindings while it cannot read the store; while a shard cannot be decoded, `is_readable` is
false, because a missing rule may be one that denies.

Source: protocol rules 1.2-1.4 and 1.6.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

from metadata.callbacks import Callbacks
from metadata.errors import MetadataFormatError
from metadata.paths import ACLS
from metadata.security.acls import (
    ACL_SHARDS,
    BINDINGS_CODEC,
    AclBinding,
    AclFilter,
    check_binding,
    ordered,
)
from metadata.store.child_values import ChildValues
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import RecordNode

BINDINGS_PER_STEP: Final = 10
"""Number of bindings that are compared with all filters before the event loop may do other work."""

_Bindings = tuple[AclBinding, ...]


def acl_shard(shard: int | str) -> RecordNode[_Bindings]:
    """Return the node of a shard."""
    return RecordNode(f"{ACLS}/{shard}", BINDINGS_CODEC)


class AclStore:
    """Bindings of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def select(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the selected bindings, with fresh reads, in their order. Raises MetadataError."""
        shards = await asyncio.gather(*[self._read(shard) for shard in range(ACL_SHARDS)])
        return sorted(binding for shard in shards for binding in shard if wanted.selects(binding))

    async def add(self, bindings: Sequence[AclBinding]) -> None:
        """Store bindings. Those that are stored already stay.

        Each shard is changed at once; a failure may leave some shards changed. Raises
        InvalidAclError before any change, TooManyAclsError, StoreUnavailableError.
        """
        for binding in bindings:
            check_binding(binding)
        by_shard: dict[int, list[AclBinding]] = {}
        for binding in bindings:
            by_shard.setdefault(binding.shard, []).append(binding)
        for shard, added in sorted(by_shard.items()):
            await self._change(shard, partial(_with, added))

    async def remove(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Remove the bindings that any filter selects, and return them in their order.

        Each shard is changed at once; a failure may leave some shards changed. Raises
        MetadataError.
        """
        present = await self.select(AclFilter())
        shards: dict[int, None] = {}
        for count, binding in enumerate(present):
            if _is_selected(binding, filters):
                shards[binding.shard] = None
            if count % BINDINGS_PER_STEP == BINDINGS_PER_STEP - 1:
                await asyncio.sleep(0)
        removed: dict[AclBinding, None] = {}

        def without(present: _Bindings) -> Sequence[AclBinding]:
            kept = [binding for binding in present if not _is_selected(binding, filters)]
            removed.update((binding, None) for binding in present if _is_selected(binding, filters))
            return kept

        for shard in shards:
            await self._change(shard, without)
        return sorted(removed)

    async def _change(
        self, shard: int, change: Callable[[_Bindings], Sequence[AclBinding]]
    ) -> None:
        await acl_shard(shard).change(
            self._store, self._rng, lambda present: ordered(change(present or ()))
        )

    async def _read(self, shard: int) -> _Bindings:
        return await acl_shard(shard).find(self._store) or ()


class AclView:
    """Bindings of a cluster, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._shards: dict[str, _Bindings] = {}
        self._unreadable: dict[str, None] = {}
        self._callbacks = Callbacks[()]()
        self._values = ChildValues(store, ACLS, rng, on_value=self._put, on_gone=self._drop)

    @property
    def is_readable(self) -> bool:
        """Whether every stored shard was decoded."""
        return not self._unreadable

    @property
    def bindings(self) -> Iterable[AclBinding]:
        """The bindings as last read."""
        return (binding for shard in self._shards.values() for binding in shard)

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `bindings` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read the bindings, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current bindings. Raises MetadataError."""
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `bindings` keeps the last known ones."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        try:
            bindings = acl_shard(name).unpack(value)
        except MetadataFormatError:
            self._unreadable[name] = None
            self._callbacks.notify()
            raise
        was_unreadable = name in self._unreadable
        self._unreadable.pop(name, None)
        if was_unreadable or self._shards.get(name) != bindings:
            self._shards[name] = bindings
            self._callbacks.notify()

    def _drop(self, name: str) -> None:
        self._shards.pop(name, None)
        self._unreadable.pop(name, None)
        self._callbacks.notify()


def _with(added: Sequence[AclBinding], present: _Bindings) -> Sequence[AclBinding]:
    return (*present, *added)


def _is_selected(binding: AclBinding, filters: Sequence[AclFilter]) -> bool:
    return any(acl_filter.selects(binding) for acl_filter in filters)
