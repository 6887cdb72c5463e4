"""Dumps of a store in memory, for tests of dump and restore."""

from collections.abc import Callable
from random import Random

from metadata.restore.dump_contents import read_contents
from metadata.restore.dump_file import DumpReader, DumpWriter
from metadata.restore.restore_record import RestoreRecord
from metadata.restore.restoring import Restorer, check_dump
from metadata.store.interface import MetadataStore

TAKEN_MS = 1_700_000_000_000


async def paths_in_dump(store: MetadataStore) -> list[str]:
    """Return the paths of a dump, in its order."""
    return [node.path async for node in read_contents(store)]


async def dump_of(store: MetadataStore) -> list[bytes]:
    """Return the lines of a dump."""
    writer = DumpWriter()
    lines = [writer.head(TAKEN_MS, "0.9.0")]
    lines += [writer.node(node, {}) async for node in read_contents(store)]
    return [f"{line}\n".encode() for line in (*lines, writer.end())]


async def restore(
    store: MetadataStore,
    lines: list[bytes],
    on_written: Callable[[int], None] = lambda _count: None,
) -> RestoreRecord:
    """Check a dump and write it into a store."""
    restorer = Restorer(store, Random(5), check_dump("dump", lines))
    restorer.on_written = on_written
    return await restorer.restore(DumpReader("dump", lines).nodes())
