"""`quire cluster`: creation, health, what losses of bookies would take, versions, and a report.

Leaves checks to `quire.operate.health`, counting copies to `metadata.ledgers.copies`, the order
of versions to `quire.operate.server_versions`, and the file of a report to `quire.operate.bundle`.

A report is one file with what is known of a cluster, to report a problem. Payloads, passwords,
keys, credentials, custom metadata of ledgers and configuration files are not in it. A part that
cannot be read is noted, and the others are written.
"""

import argparse
import asyncio
import os
import platform
import sys
from collections import Counter
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster, wall_clock_ms
from metadata.brokers.broker_registration import BrokerRegistration
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.copies import Loss, fewest_copies, loss_of
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.registry.cluster import create_cluster
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.security.audit_trail import AuditTrail
from metadata.store.uri import parse_metadata_uri
from quire.cli.command_line import Noun, metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import CommandError, ExitCode
from quire.identity.client_file import ClientFile
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, get_json, get_text
from quire.operate.as_json import fragments_as_json, lost_as_json, registration_as_json
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.bundle import Bundle
from quire.operate.fields import Json
from quire.operate.findings import EXAMPLES_MAX, LedgerFinding, by_advice
from quire.operate.health import Health, check_health, health_as_json
from quire.operate.repair_summary import read_summary
from quire.operate.server_versions import ServerVersion, oldest_build, upgrade_sentence
from quire.operate.watch import READ_S_MAX, Server, registered_brokers, servers_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FINDINGS_SHOWN_MAX: Final = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire cluster`."""
    noun = Noun("cluster", "The complete cluster.")
    noun.verb("init", _init, "create the cluster at this address, without bookies", is_audited=True)
    health = noun.verb(
        "health", _health, "show what is up and which ledgers lack copies; status 1 if any does"
    )
    ledgers = health.add_mutually_exclusive_group()
    ledgers.add_argument("--quick", action="store_true", help="do not read every ledger's metadata")
    ledgers.add_argument(
        "--ledgers", action="store_true", help="also list every ledger with a finding or a warning"
    )
    if_lost = noun.verb(
        "if-lost",
        show_loss,
        "show which ledgers would lose copies with these bookies; status 1 if data might be lost",
    )
    if_lost.add_argument(
        "bookies", nargs="+", metavar="ID", help="ids of bookies, as in `quire bookie list`"
    )
    noun.verb(
        "version",
        show_versions,
        "show the version of each server that is up; status 1 while they differ",
    )
    report = noun.verb(
        "report",
        report_cluster,
        "write one file with what is known of the cluster, without secrets, to report a problem",
    )
    report.add_argument("file", metavar="FILE", help="a new file: quire-report.tar.gz")
    return noun.parser


async def _init(arguments: argparse.Namespace, output: Output) -> int:
    address = metadata_address(arguments)
    instance, is_new = await create_cluster(address, Random(os.urandom(16)))
    output.record({"metadata": address, "instance": instance.hex(), "created": is_new})
    return ExitCode.DONE


async def _health(arguments: argparse.Namespace, output: Output) -> int:
    async with open_cluster(metadata_address(arguments)) as cluster:
        ledgers = None if arguments.quick else each_ledger(cluster, output)
        health = await check_health(cluster, ledgers, by_ledger=arguments.ledgers)
        row = health_as_json(cluster.address, health)
    _print(row, health, output)
    return ExitCode.FINDINGS if health.findings else ExitCode.DONE


def _print(row: dict[str, Json], health: Health, output: Output) -> None:
    kinds = (("findings", health.findings), ("warnings", health.warnings))
    if output.as_json:
        for name, found in kinds:
            row[name] = [each.as_json() for each in found[:FINDINGS_SHOWN_MAX]]
        if health.by_ledger is not None:
            row["by_ledger"] = [_ledger_as_json(kind, each) for kind, each in health.by_ledger]
        output.record(row)
        return
    output.record(row)
    for name, found in kinds:
        if found:
            output.line("")
            output.table(
                (each.as_json() for each in by_advice(found[:FINDINGS_SHOWN_MAX])),
                "where",
                "what",
                "advice",
            )
        if len(found) > FINDINGS_SHOWN_MAX:
            output.remark(f"and {len(found) - FINDINGS_SHOWN_MAX} more {name}")
    if health.by_ledger is not None:
        output.line("")
        output.table(
            (_ledger_as_json(kind, found_one) for kind, found_one in health.by_ledger),
            "ledger",
            "kind",
            "what",
            "advice",
        )
    elif any(each.ledgers and each.ledgers.count > EXAMPLES_MAX for _, f in kinds for each in f):
        output.line("\nevery ledger: quire cluster health --ledgers")


def _ledger_as_json(kind: str, found: LedgerFinding) -> dict[str, Json]:
    return {
        "ledger": found.ledger_id,
        "kind": kind,
        "what": found.what,
        "advice": found.advice,
    }


LEDGERS_SHOWN_MAX: Final = 100
DATA_AT_RISK: Final = (Loss.UNREADABLE, Loss.MAY_BE_UNREADABLE)


class _Losses:
    """Ledgers that would lack copies, counted by what they would lack."""

    def __init__(self) -> None:
        self.ledgers: Counter[Loss] = Counter()
        self.closed_bytes: Counter[Loss] = Counter()
        self.unreadable_records = 0
        self.shown: dict[Loss, list[dict[str, Json]]] = {each: [] for each in Loss}

    def add(self, ledger: LedgerMetadata, loss: Loss, first_entry_id: int) -> None:
        """Count one ledger."""
        self.ledgers[loss] += 1
        self.closed_bytes[loss] += ledger.length or 0
        if len(self.shown[loss]) < LEDGERS_SHOWN_MAX:
            row: dict[str, Json] = {
                "ledger": ledger.ledger_id,
                "state": str(ledger.state),
                "bytes": ledger.length,
                "loss": str(loss),
                "from_entry": first_entry_id,
            }
            self.shown[loss].append(row)

    @property
    def rows(self) -> list[dict[str, Json]]:
        """Ledgers to show, the worst losses first."""
        return [row for each in Loss for row in self.shown[each]][:LEDGERS_SHOWN_MAX]


async def show_loss(arguments: argparse.Namespace, output: Output) -> int:
    """Print what would be lost with the given bookies, besides those that are down already."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        known = await cluster.cookies.list_bookie_ids()
        unknown = [each for each in arguments.bookies if each not in known]
        if unknown:
            raise NoSuchBookieError(unknown[0])
        lost = dict.fromkeys(BookieId(each) for each in arguments.bookies)
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        down = [
            each
            for each in known
            if each not in cluster.directory.bookies
            and states.get(each, UNCHANGED).state is not Lifecycle.REMOVED
        ]
        left = [each for each in cluster.directory.bookies if each not in lost]
        in_limbo = [e.bookie_id for e in cluster.directory.bookies.values() if e.is_in_limbo]
        losses = await _losses(cluster, left, in_limbo, output)
    row: dict[str, Json] = {
        "if_lost": list(lost),
        "down_already": [each for each in down if each not in lost],
        "bookies_left": len(left),
    }
    for each in Loss:
        row[f"{each.name.lower()}_ledgers"] = losses.ledgers[each]
        row[f"{each.name.lower()}_closed_bytes"] = losses.closed_bytes[each]
    row["ledgers_not_read"] = losses.unreadable_records
    _print_losses(row, losses, output)
    is_at_risk = any(losses.ledgers[each] for each in DATA_AT_RISK) or losses.unreadable_records
    return ExitCode.FINDINGS if is_at_risk else ExitCode.DONE


async def _losses(
    cluster: Cluster, up: list[BookieId], in_limbo: list[BookieId], output: Output
) -> _Losses:
    losses = _Losses()
    async for _, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            losses.unreadable_records += 1
            continue
        copies = fewest_copies(ledger, up, in_limbo)
        loss = None if copies is None else loss_of(copies)
        if copies is not None and loss is not None:
            losses.add(ledger, loss, copies.first_entry_id)
    return losses


def _print_losses(row: dict[str, Json], losses: _Losses, output: Output) -> None:
    columns = ("ledger", "state", "bytes", "loss", "from_entry")
    output.document(row | {"ledgers": losses.rows}, {"ledgers": columns})
    hidden = sum(losses.ledgers.values()) - len(losses.rows)
    if hidden and not output.as_json:
        output.remark(f"and {hidden} more ledgers")


API_SHOWN = "Fetch"
"""API whose versions a broker's line shows; `-o json` lists all."""


async def show_versions(arguments: argparse.Namespace, output: Output) -> int:
    """Print each server that is up, with its version and what it speaks."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        bookies = sorted(cluster.directory.bookies.values(), key=lambda each: each.bookie_id)
        brokers = await registered_brokers(cluster.store, cluster.rng)
    servers = [_of_bookie(each) for each in bookies]
    rows: list[dict[str, Json]] = [
        {**_version_row(server), "wire_versions": list(each.wire_versions)}
        for server, each in zip(servers, bookies, strict=True)
    ]
    for broker in brokers:
        server = _of_broker(broker)
        servers.append(server)
        apis: dict[str, Json] = {each.name: [each.low, each.high] for each in broker.apis}
        rows.append({**_version_row(server), "api_versions": apis})
    oldest = oldest_build(servers)
    sentence = upgrade_sentence(servers)
    if output.as_json:
        output.record({"state": sentence, "oldest": oldest, "servers": rows})
    else:
        output.line(sentence)
        if rows:
            output.table(rows, "kind", "id", "build", "speaks")
    is_complete = all(each.build == oldest for each in servers)
    return ExitCode.DONE if is_complete else ExitCode.FINDINGS


def _of_bookie(each: BookieRegistration) -> ServerVersion:
    low, high = each.wire_versions
    return ServerVersion("bookie", each.bookie_id, each.build, f"{low}-{high}")


def _of_broker(each: BrokerRegistration) -> ServerVersion:
    shown = [f"{api.name} {api.low}-{api.high}" for api in each.apis if api.name == API_SHOWN]
    return ServerVersion("broker", str(each.broker_id), each.build, ", ".join(shown))


def _version_row(server: ServerVersion) -> dict[str, Json]:
    return {
        "kind": server.kind,
        "id": server.name,
        "build": server.build,
        "speaks": server.wire,
    }


LEDGERS_MAX: Final = 10_000
"""Number of ledgers, the oldest first, whose metadata is in the report."""
PART_S_MAX: Final = 120.0
FAILURES: Final = (MetadataError, AdminApiError, SecurityError, CommandError, TimeoutError)


async def report_cluster(arguments: argparse.Namespace, output: Output) -> int:
    """Write the report, and print its parts."""
    path = Path(arguments.file)
    address = metadata_address(arguments)
    now_ms = wall_clock_ms()
    with Bundle(path, now_ms // 1000) as bundle:
        bundle.add_json("environment.json", environment(now_ms))
        async with open_cluster(address) as cluster:
            steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
                ("health.json", lambda: _add_health(bundle, cluster)),
                ("bookies.json", lambda: _add_bookies(bundle, cluster)),
                ("repair.json", lambda: _add_repair(bundle, cluster)),
                ("audit.json", lambda: _add_audit(bundle, cluster)),
                ("servers", lambda: _add_servers(bundle, cluster, identity_of(address))),
                ("ledgers.json", lambda: _add_ledgers(bundle, cluster, output)),
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


async def _add_health(bundle: Bundle, cluster: Cluster) -> None:
    health = await check_health(cluster, None)
    row = health_as_json(_plain_address(cluster.address), health)
    found = {"findings": health.findings, "warnings": health.warnings}
    more = {name: [each.as_json() for each in listed] for name, listed in found.items()}
    bundle.add_json("health.json", row | more)


async def _add_bookies(bundle: Bundle, cluster: Cluster) -> None:
    up = cluster.directory.bookies
    bundle.add_json("bookies.json", [registration_as_json(up[each]) for each in sorted(up)])


async def _add_repair(bundle: Bundle, cluster: Cluster) -> None:
    summary = await read_summary(cluster)
    bundle.add_json("repair.json", summary.as_json())
    bundle.add_json("jobs.json", [each.text for each in summary.published])


async def _add_audit(bundle: Bundle, cluster: Cluster) -> None:
    records = await AuditTrail(cluster.store, cluster.rng).get()
    bundle.add_json("audit.json", [asdict(each) for each in records])


async def _add_servers(bundle: Bundle, cluster: Cluster, identity: ClientFile) -> None:
    servers = await servers_of(cluster)
    await asyncio.gather(*(_add_server(bundle, each, identity) for each in servers))


async def _add_server(bundle: Bundle, server: Server, identity: ClientFile) -> None:
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


async def _add_ledgers(bundle: Bundle, cluster: Cluster, output: Output) -> None:
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
