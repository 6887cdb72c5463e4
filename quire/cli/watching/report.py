"""`quire cluster report`: one file with what is known of a cluster, without secrets.

Leaves the file to `quire.operate.bundle`. Payloads, passwords, keys, credentials, custom metadata
of ledgers and configuration files are not in it.

Invariant: a part that cannot be read is noted, and the others are written.
"""

import argparse
import asyncio
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster, wall_clock_ms
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.security.audit_trail import AuditTrail
from metadata.store.uri import parse_metadata_uri
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import CommandError, ExitCode
from quire.identity.client_file import ClientFile
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, get_json, get_text
from quire.operate.as_json import fragments_as_json, lost_as_json, registration_as_json
from quire.operate.bundle import Bundle
from quire.operate.fields import Json
from quire.operate.health import check_health, health_as_json
from quire.operate.repair_summary import read_summary
from quire.operate.watch import READ_S_MAX, Server, servers_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LEDGERS_MAX: Final = 10_000
"""Number of ledgers, the oldest first, whose metadata is in the report."""
PART_S_MAX: Final = 120.0
FAILURES: Final = (MetadataError, AdminApiError, SecurityError, CommandError, TimeoutError)


async def report(arguments: argparse.Namespace, output: Output) -> int:
    """Write the report, and print its parts."""
    path = Path(arguments.file)
    address = metadata_address(arguments)
    now_ms = wall_clock_ms()
    with Bundle(path, now_ms // 1000) as bundle:
        bundle.add_json("environment.json", environment(now_ms))
        async with open_cluster(address) as cluster:
            steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
                ("health.json", lambda: _health(bundle, cluster)),
                ("bookies.json", lambda: _bookies(bundle, cluster)),
                ("repair.json", lambda: _repair(bundle, cluster)),
                ("audit.json", lambda: _audit(bundle, cluster)),
                ("servers", lambda: _servers(bundle, cluster, identity_of(address))),
                ("ledgers.json", lambda: _ledgers(bundle, cluster, output)),
            )
            for name, step in steps:
                try:
                    async with asyncio.timeout(PART_S_MAX):
                        await step()
                except FAILURES as error:
                    bundle.note(f"{name}: {error or type(error).__name__}")
    output.record({"file": str(path), "bytes": bundle.file_bytes, "parts": len(bundle.parts)})
    if output.remarks_to_person:
        output.remark("look into it before you send it: tar -tzf shows the parts")
    return ExitCode.DONE


def environment(now_ms: int) -> dict[str, Json]:
    """Return what this machine is."""
    return {
        "time_ms": now_ms,
        "quire": version("quire"),
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
    }


async def _health(bundle: Bundle, cluster: Cluster) -> None:
    health = await check_health(cluster, None)
    row = health_as_json(_plain_address(cluster.address), health)
    found = {"findings": health.findings, "warnings": health.warnings}
    more = {name: [each.as_json() for each in listed] for name, listed in found.items()}
    bundle.add_json("health.json", row | more)


async def _bookies(bundle: Bundle, cluster: Cluster) -> None:
    up = cluster.directory.bookies
    bundle.add_json("bookies.json", [registration_as_json(up[each]) for each in sorted(up)])


async def _repair(bundle: Bundle, cluster: Cluster) -> None:
    summary = await read_summary(cluster)
    bundle.add_json("repair.json", summary.as_json())
    bundle.add_json("jobs.json", [each.text for each in summary.published])


async def _audit(bundle: Bundle, cluster: Cluster) -> None:
    records = await AuditTrail(cluster.store, cluster.rng).get()
    bundle.add_json("audit.json", [asdict(each) for each in records])


async def _servers(bundle: Bundle, cluster: Cluster, identity: ClientFile) -> None:
    servers = await servers_of(cluster)
    await asyncio.gather(*(_server(bundle, each, identity) for each in servers))


async def _server(bundle: Bundle, server: Server, identity: ClientFile) -> None:
    name = f"{server.kind}-{server.name}"
    try:
        url = server.admin_url
        bundle.add(
            f"metrics/{name}.txt", await get_text(f"{url}/metrics", identity, timeout_s=READ_S_MAX)
        )
        state = await get_json(f"{url}/api/v1/state", identity, timeout_s=READ_S_MAX)
        bundle.add_json(f"state/{name}.json", state)
    except FAILURES as error:
        bundle.note(f"{name}: {error}")


async def _ledgers(bundle: Bundle, cluster: Cluster, output: Output) -> None:
    rows: list[Json] = []
    async for ledger_id, ledger in each_ledger(cluster, output):
        if len(rows) == LEDGERS_MAX:
            bundle.note(f"ledgers.json has the first {LEDGERS_MAX} ledgers only")
            break
        rows.append(ledger_row(ledger_id, ledger))
    bundle.add_json("ledgers.json", rows)


def ledger_row(
    ledger_id: LedgerId, ledger: LedgerMetadata | MetadataFormatError
) -> dict[str, Json]:
    """Return what the report says of a ledger: where it is, but not its custom metadata."""
    if isinstance(ledger, MetadataFormatError):
        return {"ledger_id": ledger_id, "error": str(ledger)}
    return {
        "ledger_id": ledger_id,
        "state": str(ledger.state),
        "last_entry_id": ledger.last_entry_id,
        "length": ledger.length,
        "ensemble": ledger.quorum.ensemble_size,
        "write": ledger.quorum.write_quorum,
        "ack": ledger.quorum.ack_quorum,
        "mode": str(ledger.quorum.mode),
        "created_ms": ledger.created_ms,
        "fragments": fragments_as_json(ledger.fragments),
        "lost": lost_as_json(ledger.lost),
    }


def _plain_address(address: str) -> str:
    """Return an address without its client's file."""
    return replace(parse_metadata_uri(address), client_file="").text
