"""Content of a dump: every node that a cluster cannot do without, read from the store.

Leaves the lines of the file to `dump_file.py`.

The register (`metadata.paths`) says which kinds of nodes are left out, with every ephemeral node.

Invariants: a node comes before the nodes below it; the lists that name ledgers (chains, partitions)
are read before the ledgers, so a ledger that such a list names is in the dump unless it was deleted
meanwhile; counters are read last. A dump of a running cluster is not of one moment.

Source: metadata design, "Dump and restore"; protocol rule 10.6.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.errors import NodeNotFoundError
from metadata.paths import LEDGERS, LEFT_OUT
from metadata.store.interface import MetadataStore, Stored

READS_AT_ONCE: Final = 64
ZOOKEEPER_OWN: Final = "zookeeper"
"""Name of ZooKeeper's own node, which is in the root of an address without a path."""

_COUNTERS: Final = "ids"
_LAST: Final = (LEDGERS.removeprefix("/"), _COUNTERS)


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """One node: its path, value and version."""

    path: str
    value: bytes
    version: int


async def read_contents(store: MetadataStore) -> AsyncIterator[DumpedNode]:
    """Yield the nodes of a dump, each before those below it. Raises MetadataError."""
    names = await root_names(store)
    first = [name for name in names if name not in _LAST]
    for name in (*first, *(late for late in _LAST if late in names)):
        async for node in _below("", [name], store):
            yield node


async def root_names(store: MetadataStore) -> list[str]:
    """Return the names of all nodes of the root but ZooKeeper's own, by a fresh read."""
    names = await store.children("/", fresh=True)
    return [name for name in names if name != ZOOKEEPER_OWN]


async def _below(
    parent: str, names: Sequence[str], store: MetadataStore
) -> AsyncIterator[DumpedNode]:
    for start in range(0, len(names), READS_AT_ONCE):
        paths = [f"{parent}/{name}" for name in names[start : start + READS_AT_ONCE]]
        kept = [path for path in paths if path not in LEFT_OUT]
        nodes = await asyncio.gather(*[_read(store, path) for path in kept])
        for path, node in zip(kept, nodes, strict=True):
            if node is None:
                continue
            stored, children = node
            yield DumpedNode(path, stored.value, stored.version)
            if children:
                async for child in _below(path, children, store):
                    yield child


async def _read(store: MetadataStore, path: str) -> tuple[Stored, list[str]] | None:
    """Return a node and the names below it; None if it is gone, or ephemeral."""
    try:
        stored = await store.get(path)
    except NodeNotFoundError:
        return None
    return None if stored.ephemeral else (stored, await store.children(path))
