"""`quire metadata dump|restore|accept-restore`: everything that a restore needs, and the restore.

Leaves what that is to `metadata.restore.dump_contents`, the lines to `metadata.restore.dump_file`,
the restore to `metadata.restore.restoring`, and the comparison with the bookies to
`metadata_check`.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from ledger_client.cluster_access import open_cluster, wall_clock_ms
from metadata.errors import MetadataFormatError
from metadata.ids import Version
from metadata.ledgers.codec import decode_ledger_metadata
from metadata.paths import COOKIES, INSTANCE, LEDGERS, TOPICS
from metadata.registry.cookies import COOKIE_CODEC
from metadata.restore.dump_contents import DumpedNode, read_contents
from metadata.restore.dump_file import LINE_BYTES_MAX, DumpReader, DumpWriter
from metadata.restore.restore_record import accept_restore
from metadata.restore.restoring import CheckedDump, Restorer, check_dump
from metadata.store.zookeeper.store import open_store
from metadata.topics.topic import TOPIC_CODEC
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode, UsageError
from quire.operate.as_json import metadata_as_json
from quire.operate.fields import Json
from quire.server.process import build

NEXT_STEP = (
    "Nothing is removed that this metadata does not know. Start the bookies, run `quire metadata "
    "compare`, then `quire metadata accept-restore --yes`."
)


async def restore(arguments: argparse.Namespace, output: Output) -> int:
    """Check the complete file, then write it."""
    address, name = metadata_address(arguments), arguments.file
    with _lines(name) as lines:
        dump = check_dump(name, lines)
    require_consent(arguments, f"write {dump.node_count} nodes of {name} to {address}")
    rng = Random(os.urandom(16))
    store = await open_store(address, rng=rng)
    try:
        await _write(Restorer(store, rng, dump), dump, name, output)
    finally:
        await store.aclose()
    output.record({"metadata": address, "node_count": dump.node_count, "taken_ms": dump.taken_ms})
    if not output.as_json:
        output.remark(NEXT_STEP)
    return ExitCode.DONE


async def accept(arguments: argparse.Namespace, output: Output) -> int:
    """Accept that the metadata is as it was at the dump."""
    address = metadata_address(arguments)
    require_consent(arguments, "let bookies remove what this metadata does not know")
    async with open_cluster(address) as cluster:
        record = await accept_restore(cluster.store)
    output.record({"metadata": address, "taken_ms": record.taken_ms, "accepted": True})
    return ExitCode.DONE


async def _write(restorer: Restorer, dump: CheckedDump, name: str, output: Output) -> None:
    with _lines(name) as lines, Progress(output, "restored", "nodes", dump.node_count) as progress:
        restorer.on_written = progress.advance
        await restorer.restore(DumpReader(name, lines).nodes())


@contextmanager
def _lines(name: str) -> Iterator[Iterator[bytes]]:
    """Open a file and yield its lines, each with at most one byte more than LINE_BYTES_MAX."""
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"cannot open {name}: {error.strerror}") from error
    with stream:
        yield iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b"")


async def dump(arguments: argparse.Namespace, output: Output) -> int:
    """Print the dump; its last line has a checksum, so an incomplete file is noticed."""
    writer = DumpWriter()
    async with open_cluster(metadata_address(arguments)) as cluster:
        output.line(writer.head(wall_clock_ms(), build()))
        async for node in read_contents(cluster.store):
            output.line(writer.node(node, shown(node)))
    output.line(writer.end())
    return ExitCode.DONE


def shown(node: DumpedNode) -> dict[str, Json]:
    """Return a node's kind, and what people want to see of it; a restore reads none of that."""
    try:
        return _shown(node)
    except MetadataFormatError as error:
        return {"kind": "node", "error": str(error)}


def _shown(node: DumpedNode) -> dict[str, Json]:
    path, value = node.path, node.value
    if path == INSTANCE:
        return {"kind": "instance"}
    if path.startswith(f"{COOKIES}/"):
        cookie = COOKIE_CODEC.unpack(path, value)
        starts = cookie.starts_at(Version(node.version))
        row: dict[str, Json] = {"id": cookie.bookie_id, "created_ms": cookie.created_ms}
        return {"kind": "cookie", **row, "starts": starts}
    if path.startswith(f"{TOPICS}/"):
        topic = TOPIC_CODEC.unpack(path, value)
        return {"kind": "topic", "name": topic.name, "partition_count": len(topic.partitions)}
    if path.startswith(f"{LEDGERS}/") and value:
        return {"kind": "ledger", **metadata_as_json(decode_ledger_metadata(value, path))}
    return {"kind": "node"}
