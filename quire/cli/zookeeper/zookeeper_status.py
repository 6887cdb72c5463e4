"""Handler of `quire zookeeper status`.

Leaves asking the servers to `quire.zookeeper.status`.
"""

import argparse

from quire.cli.output import Output
from quire.errors import ExitCode, UsageError
from quire.zookeeper.status import ask_servers


async def status(arguments: argparse.Namespace, output: Output) -> int:
    """Print a row for each server; status 1 if one does not serve."""
    asked = await ask_servers([_address(each) for each in arguments.addresses])
    with output.listing("address", "mode", "version", "node_count", "connections") as listing:
        for each in asked:
            listing.add(
                {
                    "address": each.address,
                    "mode": each.mode,
                    "version": each.version,
                    "node_count": each.node_count,
                    "connections": each.connections,
                }
            )
    return ExitCode.DONE if all(each.serves for each in asked) else ExitCode.FINDINGS


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise UsageError(f"{text!r} is not HOST:PORT", try_next="quire zookeeper status --help")
    return host.strip("[]"), int(port)
