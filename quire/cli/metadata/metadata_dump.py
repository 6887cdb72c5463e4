"""`quire metadata dump`: everything that a restore needs.

Leaves what that is to `metadata.restore.dump_contents`, and the lines to
`metadata.restore.dump_file`.
"""

import argparse

from ledger_client.cluster_access import open_cluster, wall_clock_ms
from metadata.errors import MetadataFormatError
from metadata.ids import Version
from metadata.ledgers.codec import decode_ledger_metadata
from metadata.paths import COOKIES, INSTANCE, LEDGERS, TOPICS
from metadata.registry.cookies import unpack_cookie
from metadata.restore.dump_contents import DumpedNode, read_contents
from metadata.restore.dump_file import DumpWriter
from metadata.topics.topic import unpack_topic
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.as_json import metadata_as_json
from quire.operate.fields import Json
from quire.server.process import build


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
        cookie = unpack_cookie(path, value)
        starts = cookie.starts_at(Version(node.version))
        row: dict[str, Json] = {"id": cookie.bookie_id, "created_ms": cookie.created_ms}
        return {"kind": "cookie", **row, "starts": starts}
    if path.startswith(f"{TOPICS}/"):
        topic = unpack_topic(path, value)
        return {"kind": "topic", "name": topic.name, "partition_count": len(topic.partitions)}
    if path.startswith(f"{LEDGERS}/") and value:
        return {"kind": "ledger", **metadata_as_json(decode_ledger_metadata(value, path))}
    return {"kind": "node"}
