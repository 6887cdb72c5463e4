"""`quire metadata dump|restore|accept-restore|check|compare|secure|identity`: the stored metadata.

Source: protocol rules 10.1 and 10.6; docs/repair.md.
"""

import argparse
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster, wall_clock_ms
from metadata.errors import MetadataFormatError
from metadata.ids import LedgerId, Version
from metadata.ledgers.codec import decode_ledger_metadata
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import COOKIES, INSTANCE, LEDGERS, TOPICS
from metadata.registry.cluster import require_cluster
from metadata.registry.cookies import COOKIE_CODEC
from metadata.registry.registration import BookieRegistration
from metadata.restore.dump_contents import DumpedNode, read_contents
from metadata.restore.dump_file import LINE_BYTES_MAX, DumpReader, DumpWriter
from metadata.restore.restore_record import accept_restore
from metadata.restore.restoring import CheckedDump, Restorer, check_dump
from metadata.security.rights_record import OPEN, AccessList, NodeRights, checked_rights
from metadata.security.securing import Outcome, Securing
from metadata.store.uri import parse_metadata_uri
from metadata.store.zookeeper.store import open_store
from metadata.topics.topic import TOPIC_CODEC
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.cli.progress import Progress, each_ledger
from quire.distribution import build
from quire.errors import ExitCode, UsageError
from quire.identity.client_file import zookeeper_access_of
from quire.identity.zookeeper_access import check_user, digest_identity, read_password
from quire.operate.admin_api import AdminApiError
from quire.operate.as_json import metadata_as_json
from quire.operate.assessment import record_findings
from quire.operate.fields import Json, Row
from quire.operate.findings import Finding
from quire.operate.held_ledgers import deleted_ledgers, find_ledger, held_by, holding_of

NEXT_STEP = (
    "Nothing is removed that this metadata does not know. Start the bookies, run `quire metadata "
    "compare`, then `quire metadata accept-restore --yes`."
)
FINDINGS_MAX: Final = 10_000
"""Maximum number of ledgers that one call lists."""
COMPARED_COLUMNS: Final = ("ledger", "bookie", "entries", "last_entry_id", "what", "advice")
CHANGES_SHOWN_MAX: Final = 1_000
"""Maximum number of nodes that one call lists."""
COLUMNS: Final = ("path", "what")
UNSETTLED: Final = (
    "nodes without these rights are still created: restart servers and clients that do not log in, "
    "then run this again"
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


async def check(arguments: argparse.Namespace, output: Output) -> int:
    """Read every record, and compare the bookies that are up and the ledgers with them."""
    findings: list[Finding] = []
    count = 0
    async with open_cluster(metadata_address(arguments)) as cluster:
        formatted = dict.fromkeys(await cluster.cookies.list_bookie_ids())
        for bookie_id in formatted:
            try:
                await cluster.cookies.get(bookie_id)
            except MetadataFormatError as error:
                findings.append(Finding(f"cookie {bookie_id}", str(error), "restore it"))
        for bookie_id in cluster.directory.bookies:
            if bookie_id not in formatted:
                text = "is registered but has no cookie"
                findings.append(
                    Finding(f"bookie {bookie_id}", text, "stop it and check its data_dir")
                )
        async for ledger_id, ledger in each_ledger(cluster, output):
            count += 1
            if isinstance(ledger, MetadataFormatError):
                advice = f"use a newer release, or quire ledger delete {ledger_id}"
                findings.append(Finding(f"ledger {ledger_id}", str(ledger), advice))
            else:
                findings += record_findings(ledger, formatted)
    rows: list[Row] = [finding.as_json() for finding in findings]
    if output.as_json:
        output.record({"ledger_count": count, "finding_count": len(rows), "findings": rows})
    else:
        output.line(f"{count} ledgers, {len(formatted)} cookies: {len(rows)} findings")
        if rows:
            output.table(rows, "where", "what", "advice")
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def compare(arguments: argparse.Namespace, output: Output) -> int:
    """Compare every bookie that is up."""
    rows: list[Row] = []
    failed: list[str] = []
    async with open_cluster(metadata_address(arguments)) as cluster:
        deleted = await deleted_ledgers(cluster)
        known = await cluster.cookies.list_bookie_ids()
        up = cluster.directory.bookies
        failed += [f"{bookie}: it is down" for bookie in known if bookie not in up]
        with Progress(output, "compared", "ledgers") as progress:
            for registration in list(up.values()):
                try:
                    async for row in _differences(cluster, registration, deleted, progress):
                        if len(rows) < FINDINGS_MAX:
                            rows.append(row)
                except AdminApiError as error:
                    failed.append(f"{registration.bookie_id}: {error}")
    if output.as_json:
        output.record({"finding_count": len(rows), "not_compared": failed, "findings": rows})
    else:
        output.line(f"{len(up)} bookies are up: {len(rows)} findings")
        if rows:
            output.table(rows, *COMPARED_COLUMNS)
        for why in failed:
            output.line(f"not compared: {why}")
    if len(rows) == FINDINGS_MAX:
        output.remark(f"the first {FINDINGS_MAX} findings are shown; there may be more")
    return ExitCode.FINDINGS if rows or failed else ExitCode.DONE


async def _differences(
    cluster: Cluster,
    registration: BookieRegistration,
    deleted: frozenset[LedgerId],
    progress: Progress,
) -> AsyncIterator[Row]:
    """Yield what one bookie holds without being named. Raises AdminApiError."""
    bookie_id = registration.bookie_id
    identity = identity_of(cluster.address)
    async for ledger_id in held_by(registration, identity):
        progress.advance(1)
        ledger = await find_ledger(cluster, ledger_id)
        if isinstance(ledger, MetadataFormatError):
            continue  # `quire metadata check` reports it
        if ledger is not None and ledger.names(bookie_id):
            continue
        holding = await holding_of(registration, ledger_id, identity)
        if holding is None and ledger is not None:
            continue  # released: its entries were removed
        meaning = meaning_of(ledger, is_deleted=ledger_id in deleted)
        count = 0 if holding is None else holding.count
        yield {
            "ledger": ledger_id,
            "bookie": bookie_id,
            "entries": count,
            "last_entry_id": None if holding is None else holding.last_entry_id,
            "what": meaning.what,
            "advice": meaning.advice,
        }


async def secure(arguments: argparse.Namespace, output: Output) -> int:
    """Set the rights of every node, or show what would change."""
    address = metadata_address(arguments)
    rights = _wanted(arguments, address)
    rng = Random(os.urandom(16))
    rows: list[Row] = []

    def note(path: str, present: AccessList, wanted: AccessList) -> None:
        if len(rows) < CHANGES_SHOWN_MAX:
            rows.append({"path": path, "what": f"{_described(present)} -> {_described(wanted)}"})

    store = await open_store(address, rng=rng, make_root=False)
    try:
        await require_cluster(store)
        with Progress(output, "checked", "nodes") as progress:
            securing = Securing(store, rng, rights, on_change=note, on_walked=progress.advance)
            outcome = await (securing.plan() if arguments.dry_run else securing.apply())
    finally:
        await store.aclose()
    _show(arguments, output, outcome, rows if arguments.dry_run else [])
    is_done = not outcome.refused and (outcome.is_settled or arguments.dry_run)
    return ExitCode.DONE if is_done else ExitCode.FINDINGS


def identity(arguments: argparse.Namespace, output: Output) -> int:
    """Print the identity of the client's file, with which other logins give it rights."""
    own = _own_identity(metadata_address(arguments))
    if not own:
        raise UsageError(
            "the metadata URI names no client's file with a user of ZooKeeper",
            try_next="write user and password_file below [zookeeper], and add ?client=FILE",
        )
    output.record({"identity": own})
    return ExitCode.DONE


def _wanted(arguments: argparse.Namespace, address: str) -> NodeRights:
    """Return the rights that the arguments describe. Raises UsageError, MetadataError."""
    named = (*arguments.servers, *arguments.clients, arguments.clients_user)
    if arguments.open:
        if any(named):
            raise UsageError("--open gives every process all rights: name no servers and clients")
        return OPEN
    if bool(arguments.clients_user) != bool(arguments.clients_password_file):
        raise UsageError("--clients-user and --clients-password-file belong together: give both")
    servers, clients = list(arguments.servers), list(arguments.clients)
    own = _own_identity(address)
    if own and own not in servers:
        servers.append(own)
    if not servers:
        raise UsageError(
            "there would be no servers: the metadata URI names no client's file with a user",
            try_next="add ?client=FILE, or --servers x509:SUBJECT for logins by certificate",
        )
    if arguments.clients_user:
        user = check_user(arguments.clients_user)
        password = read_password(arguments.clients_password_file)
        clients.append(digest_identity(f"{user}:{password}"))
    return checked_rights(servers, clients)


def _own_identity(address: str) -> str:
    return zookeeper_access_of(parse_metadata_uri(address).client_file).identity


def _described(access: AccessList) -> str:
    """Return the rights of a node without the hashes, which are nearly secrets."""
    parts = [(entry.identity.split(":"), entry.rights) for entry in access]
    shown = (
        f"{':'.join(names[:2])}={rights.name or int(rights)}".replace("|", "+")
        for names, rights in parts
    )
    return ", ".join(shown)


def _show(arguments: argparse.Namespace, output: Output, outcome: Outcome, rows: list[Row]) -> None:
    refused: list[Row] = [
        {"path": path, "what": "its rights belong to another login"} for path in outcome.refused
    ]
    if output.as_json:
        output.record(
            {
                "node_count": outcome.node_count,
                "changed_count": outcome.changed_count,
                "settled": outcome.is_settled,
                "refused": [row["path"] for row in refused],
                "changes": rows,
            }
        )
        return
    verb = "would be changed" if arguments.dry_run else "changed"
    output.line(f"{outcome.node_count} nodes: {outcome.changed_count} {verb}")
    if rows or refused:
        output.table((*rows, *refused), *COLUMNS)
    if len(rows) == CHANGES_SHOWN_MAX:
        output.remark(f"the first {CHANGES_SHOWN_MAX} changes are shown; there may be more")
    if not arguments.dry_run and not outcome.is_settled:
        output.remark(UNSETTLED)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a difference says, and what to do."""

    what: str
    advice: str


DELETED = Meaning("deleted: its data is not removed yet", "nothing: it is removed")
UNKNOWN = Meaning(
    "the metadata does not know it: created after the dump, or deleted before",
    "make it a ledger again with `quire ledger rescue`, or accept the loss",
)
MOVED = Meaning(
    "closed, and does not name this bookie: its copy moved away before the dump, or here after it",
    "`quire ledger verify ID`: keep this bookie up, and do not accept, until every entry is there",
)
NOT_CLOSED = Meaning(
    "not closed, and does not name this bookie: its ensemble changed after the dump",
    "do not recover it before you compared its entries: it would end before them",
)


def meaning_of(ledger: LedgerMetadata | None, *, is_deleted: bool) -> Meaning:
    """Return what it means that a bookie that a ledger does not name holds it."""
    if ledger is None:
        return DELETED if is_deleted else UNKNOWN
    return MOVED if ledger.state is LedgerState.CLOSED else NOT_CLOSED
