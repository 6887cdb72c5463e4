"""`quire cluster`: creation, health, what losses of bookies would take, versions, and a report.

A report is one file with what is known of a cluster, to report a problem. Payloads, passwords,
keys, credentials, custom metadata of ledgers and configuration files are not in it. A part that
cannot be read is noted, and the others are written.

Format: a tar file, compressed by gzip, with one directory. `notes.txt` in it says what could not be
read, and what was cut.
"""

import argparse
import asyncio
import io
import json
import os
import platform
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ledger_client.cluster_access import Cluster, identity_of, open_cluster, wall_clock_ms
from metadata.brokers.broker_registration import BrokerRegistration
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.copies import Loss, fewest_copies, loss_of
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import BROKERS, GATEWAYS, IN_SYNC
from metadata.registry.cluster import create_cluster
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.security.audit_trail import AuditTrail
from metadata.store.interface import find
from metadata.store.uri import parse_metadata_uri
from quire.cli.command_line import Noun, metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.distribution import build
from quire.errors import CommandError, ExitCode, UsageError
from quire.identity.client_file import ClientFile
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, get_json, get_text
from quire.operate.as_json import fragments_as_json, lost_as_json, registration_as_json
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.fields import Json
from quire.operate.findings import EXAMPLES_MAX, LedgerFinding, by_advice
from quire.operate.health import Health, check_health, health_as_json
from quire.operate.repair import read_summary
from quire.operate.watch import BROKER, READ_S_MAX, Server, registered_brokers, servers_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FINDINGS_SHOWN_MAX: Final = 100
LEDGERS_SHOWN_MAX: Final = 100
FORGOTTEN_KINDS: Final = (BROKER, "gateway")
DATA_AT_RISK: Final = (Loss.UNREADABLE, Loss.MAY_BE_UNREADABLE)
API_SHOWN = "Fetch"
"""API whose versions a broker's line shows; `-o json` lists all."""
LEDGERS_MAX: Final = 10_000
"""Number of ledgers, the oldest first, whose metadata is in the report."""
PART_S_MAX: Final = 120.0
FAILURES: Final = (MetadataError, AdminApiError, SecurityError, CommandError, TimeoutError)
NAMED_MAX: Final = 10
"""Maximum number of servers that the sentence names."""
_NUMBER = re.compile(r"\d+")
PART_BYTES_MAX: Final = 8 * 1024 * 1024
BYTES_MAX: Final = 64 * 1024 * 1024
DIRECTORY: Final = "quire-report"
NOTES: Final = "notes.txt"


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
    forget = noun.verb(
        "forget",
        forget_server,
        "remove the record of a broker or a gateway that never returns, so that it is not missed",
        is_audited=True,
    )
    forget.add_argument("kind", choices=FORGOTTEN_KINDS)
    forget.add_argument("name", metavar="NAME", help="the broker's id, or the gateway's address")
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


async def forget_server(arguments: argparse.Namespace, output: Output) -> int:
    """Remove what the metadata remembers of a server that does not run."""
    kind, name = arguments.kind, arguments.name
    async with open_cluster(metadata_address(arguments)) as cluster:
        if kind == BROKER and await find(cluster.store, f"{BROKERS}/{name}") is not None:
            raise CommandError(
                f"broker {name} is up: stop it first", try_next="quire cluster health"
            )
        path = f"{IN_SYNC if kind == BROKER else GATEWAYS}/{name}"
        stored = await find(cluster.store, path)
        if stored is None:
            raise UnknownServerError(
                f"there is no record of {kind} {name}", try_next="quire cluster health"
            )
        await cluster.store.delete(path, stored.version)
    output.record({"kind": kind, "name": name, "forgotten": True})
    return ExitCode.DONE


class UnknownServerError(CommandError):
    """No such server is known."""

    code = ExitCode.NOT_FOUND


def _print(row: dict[str, Json], health: Health, output: Output) -> None:
    kinds = (("findings", health.findings), ("warnings", health.warnings))
    if output.as_json:
        for name, findings in kinds:
            row[name] = [finding.as_json() for finding in findings[:FINDINGS_SHOWN_MAX]]
        if health.by_ledger is not None:
            row["by_ledger"] = [_ledger_as_json(kind, item) for kind, item in health.by_ledger]
        output.record(row)
        return
    del row["servers_faulty"]  # the findings say it
    output.record(row)
    for name, findings in kinds:
        if findings:
            output.line("")
            output.table(
                (finding.as_json() for finding in by_advice(findings[:FINDINGS_SHOWN_MAX])),
                "where",
                "what",
                "advice",
            )
        if len(findings) > FINDINGS_SHOWN_MAX:
            output.remark(f"and {len(findings) - FINDINGS_SHOWN_MAX} more {name}")
    if health.by_ledger is not None:
        output.line("")
        output.table(
            (_ledger_as_json(kind, found_one) for kind, found_one in health.by_ledger),
            "ledger",
            "kind",
            "what",
            "advice",
        )
    elif any(item.ledgers and item.ledgers.count > EXAMPLES_MAX for _, f in kinds for item in f):
        output.line("\nevery ledger: quire cluster health --ledgers")


def _ledger_as_json(kind: str, finding: LedgerFinding) -> dict[str, Json]:
    return {
        "ledger": finding.ledger_id,
        "kind": kind,
        "what": finding.what,
        "advice": finding.advice,
    }


class _Losses:
    """Ledgers that would lack copies, counted by what they would lack."""

    def __init__(self) -> None:
        self.ledgers: Counter[Loss] = Counter()
        self.closed_bytes: Counter[Loss] = Counter()
        self.unreadable_records = 0
        self.shown: dict[Loss, list[dict[str, Json]]] = {loss: [] for loss in Loss}

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
        return [row for loss in Loss for row in self.shown[loss]][:LEDGERS_SHOWN_MAX]


async def show_loss(arguments: argparse.Namespace, output: Output) -> int:
    """Print what would be lost with the given bookies, besides those that are down already."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        known = await cluster.cookies.list_bookie_ids()
        unknown = [bookie for bookie in arguments.bookies if bookie not in known]
        if unknown:
            raise NoSuchBookieError(unknown[0])
        lost = dict.fromkeys(BookieId(bookie) for bookie in arguments.bookies)
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        down = [
            bookie
            for bookie in known
            if bookie not in cluster.directory.bookies
            and states.get(bookie, UNCHANGED).state is not Lifecycle.REMOVED
        ]
        left = [bookie for bookie in cluster.directory.bookies if bookie not in lost]
        in_limbo = [e.bookie_id for e in cluster.directory.bookies.values() if e.is_in_limbo]
        losses = await _losses(cluster, left, in_limbo, output)
    row: dict[str, Json] = {
        "if_lost": list(lost),
        "down_already": [bookie for bookie in down if bookie not in lost],
        "bookies_left": len(left),
    }
    for loss in Loss:
        row[f"{loss.name.lower()}_ledgers"] = losses.ledgers[loss]
        row[f"{loss.name.lower()}_closed_bytes"] = losses.closed_bytes[loss]
    row["ledgers_not_read"] = losses.unreadable_records
    _print_losses(row, losses, output)
    is_at_risk = any(losses.ledgers[loss] for loss in DATA_AT_RISK) or losses.unreadable_records
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


async def show_versions(arguments: argparse.Namespace, output: Output) -> int:
    """Print each server that is up, with its version and what it speaks."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        bookies = sorted(cluster.directory.bookies.values(), key=lambda bookie: bookie.bookie_id)
        brokers = await registered_brokers(cluster.store, cluster.rng)
    servers = [_of_bookie(bookie) for bookie in bookies]
    rows: list[dict[str, Json]] = [
        {**_version_row(server), "wire_versions": list(registration.wire_versions)}
        for server, registration in zip(servers, bookies, strict=True)
    ]
    for broker in brokers:
        server = _of_broker(broker)
        servers.append(server)
        apis: dict[str, Json] = {api.name: [api.low, api.high] for api in broker.apis}
        rows.append({**_version_row(server), "api_versions": apis})
    oldest = oldest_build(servers)
    sentence = upgrade_sentence(servers)
    if output.as_json:
        output.record({"state": sentence, "oldest": oldest, "servers": rows})
    else:
        output.line(sentence)
        if rows:
            output.table(rows, "kind", "id", "build", "speaks")
    is_complete = all(server_version.build == oldest for server_version in servers)
    return ExitCode.DONE if is_complete else ExitCode.FINDINGS


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """Version of one server, and the lowest and highest version that it speaks."""

    kind: str
    name: str
    build: str
    wire: str
    """For people, for example `1-2`."""

    @property
    def what(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


def _of_bookie(bookie: BookieRegistration) -> ServerVersion:
    low, high = bookie.wire_versions
    return ServerVersion("bookie", bookie.bookie_id, bookie.build, f"{low}-{high}")


def _of_broker(broker: BrokerRegistration) -> ServerVersion:
    shown = [f"{api.name} {api.low}-{api.high}" for api in broker.apis if api.name == API_SHOWN]
    return ServerVersion("broker", str(broker.broker_id), broker.build, ", ".join(shown))


def _version_row(server: ServerVersion) -> dict[str, Json]:
    return {
        "kind": server.kind,
        "id": server.name,
        "build": server.build,
        "speaks": server.wire,
    }


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
        "quire": build(),
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
    }


class Bundle:
    """A bundle that is written; use it in a `with` block.

    The file is readable by its owner alone, and does not replace another; a part has at most
    PART_BYTES_MAX, and all together at most BYTES_MAX before compression.
    """

    def __init__(self, path: Path, time_s: int) -> None:
        """Create the file. Raises UsageError if it exists, or cannot be made."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be made ({error.strerror})", try_next="name a new file"
            ) from error
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115 - closed at the end
        self._time_s = time_s
        self._left = BYTES_MAX
        self._notes: list[str] = []
        self.parts: list[str] = []
        """Names of the parts, in order."""
        self.file_bytes = 0
        """Size of the file, once it is closed."""

    def __enter__(self) -> Self:
        """Return the bundle."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the notes, and close the file."""
        if error is None:
            self._write(NOTES, "\n".join(self._notes or ["everything was read"]).encode() + b"\n")
        self._tar.close()
        self.file_bytes = self._file.tell()
        self._file.close()

    def note(self, text: str) -> None:
        """Note what could not be read."""
        self._notes.append(text)

    def add_json(self, name: str, value: Json) -> None:
        """Add a part as JSON."""
        self.add(name, json.dumps(value, indent=1))

    def add(self, name: str, text: str) -> None:
        """Add a part, as much of it as has room."""
        data = text.encode()
        room = min(PART_BYTES_MAX, self._left)
        if len(data) > room:
            self.note(f"{name} is cut after {room} of {len(data)} B")
            data = data[:room]
        self._left -= len(data)
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(f"{DIRECTORY}/{name}")
        info.size, info.mode, info.mtime = len(data), 0o600, self._time_s
        self._tar.addfile(info, io.BytesIO(data))
        self.parts.append(name)


async def _add_health(bundle: Bundle, cluster: Cluster) -> None:
    health = await check_health(cluster, None)
    row = health_as_json(_plain_address(cluster.address), health)
    kinds = {"findings": health.findings, "warnings": health.warnings}
    more = {name: [finding.as_json() for finding in listed] for name, listed in kinds.items()}
    bundle.add_json("health.json", row | more)


async def _add_bookies(bundle: Bundle, cluster: Cluster) -> None:
    up = cluster.directory.bookies
    bundle.add_json("bookies.json", [registration_as_json(up[bookie]) for bookie in sorted(up)])


async def _add_repair(bundle: Bundle, cluster: Cluster) -> None:
    summary = await read_summary(cluster)
    bundle.add_json("repair.json", summary.as_json())
    bundle.add_json("jobs.json", [job_name.text for job_name in summary.published])


async def _add_audit(bundle: Bundle, cluster: Cluster) -> None:
    records = await AuditTrail(cluster.store, cluster.rng).get()
    bundle.add_json("audit.json", [asdict(record) for record in records])


async def _add_servers(bundle: Bundle, cluster: Cluster, identity: ClientFile) -> None:
    servers = await servers_of(cluster)
    await asyncio.gather(*(_add_server(bundle, server, identity) for server in servers))


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


def oldest_build(servers: Sequence[ServerVersion]) -> str | None:
    """Return the oldest version; None without servers."""
    return min((server.build for server in servers), key=_rank, default=None)


def upgrade_sentence(servers: Sequence[ServerVersion]) -> str:
    """Say whether all servers run the newest version among them."""
    if not servers:
        return "No server is up."
    newest = max((server.build for server in servers), key=_rank)
    behind = [server for server in servers if server.build != newest]
    count = len(servers)
    if not behind:
        return f"All {count} servers run {newest}." if count > 1 else f"The server runs {newest}."
    older = list(dict.fromkeys(row.build for row in behind))
    shown = [row.what if len(older) == 1 else f"{row.what} ({row.build})" for row in behind]
    names = ", ".join(shown[:NAMED_MAX])
    if len(shown) > NAMED_MAX:
        names += f", and {len(shown) - NAMED_MAX} more"
    if len(older) == 1:
        runs = "runs" if len(behind) == 1 else "run"
        return f"{len(behind)} of {count} servers still {runs} {older[0]}: {names}."
    return f"{len(behind)} of {count} servers do not run {newest} yet: {names}."


def _rank(build: str) -> tuple[tuple[int, ...], str]:
    """Order versions by their numbers."""
    return tuple(int(number) for number in _NUMBER.findall(build)), build
