"""`quire metadata secure|identity`: rights of logins on the stored metadata.

Leaves the rights to `metadata.paths`, and setting them to
`metadata.security.securing`.
"""

import argparse
import os
from random import Random
from typing import Final

from metadata.registry.cluster import require_cluster
from metadata.security.rights_record import OPEN, AccessList, NodeRights, checked_rights
from metadata.security.securing import Outcome, Securing
from metadata.store.uri import parse_metadata_uri
from metadata.store.zookeeper.store import open_store
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode, UsageError
from quire.identity.client_file import zookeeper_access_of
from quire.identity.zookeeper_access import check_user, digest_identity, read_password
from quire.operate.fields import Row

CHANGES_SHOWN_MAX: Final = 1_000
"""Maximum number of nodes that one call lists."""
COLUMNS: Final = ("path", "what")
UNSETTLED: Final = (
    "nodes without these rights are still created: restart servers and clients that do not log in, "
    "then run this again"
)


async def secure(arguments: argparse.Namespace, output: Output) -> int:
    """Set the rights of every node, or show what would change."""
    address = metadata_address(arguments)
    rights = _wanted(arguments, address)
    rng = Random(os.urandom(16))
    rows: list[Row] = []

    def note(path: str, found: AccessList, wanted: AccessList) -> None:
        if len(rows) < CHANGES_SHOWN_MAX:
            rows.append({"path": path, "what": f"{_described(found)} -> {_described(wanted)}"})

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
    found = _own_identity(metadata_address(arguments))
    if not found:
        raise UsageError(
            "the metadata URI names no client's file with a user of ZooKeeper",
            try_next="write user and password_file below [zookeeper], and add ?client=FILE",
        )
    output.record({"identity": found})
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
    parts = [(each.identity.split(":"), each.rights) for each in access]
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
