"""`quire ledger create|list|show|recover|verify|delete`, and options that make a ledger."""

import argparse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Literal

from ledger_client import (
    AS_STORED,
    ClientConfig,
    ClientEvent,
    Encryption,
    LedgerClient,
    LedgerInfo,
    LedgerUnreadable,
    PayloadEncryption,
    Quorum,
    QuorumTimeoutError,
    read_key_file,
)
from ledger_client.cluster_access import open_cluster, open_pool, read_ledger
from ledger_client.digest import LedgerKeys
from ledger_client.reading.verification import ReplicaReport, verify_replicas
from ledger_client.replication import REPLICA_LAG_TIME_MAX_S
from metadata.errors import MetadataFormatError
from metadata.ids import LedgerId
from metadata.ledgers.copies import copy_count
from metadata.ledgers.entry_ranges import describe_ranges
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata, LedgerState
from metadata.paths import client_path
from metadata.store.interface import find
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode, NeedsConsentError, UsageError
from quire.identity.secret_files import read_ledger_password
from quire.operate.as_json import (
    encryption_as_json,
    fragments_as_json,
    lost_as_json,
    quorum_as_json,
    text_or_base64,
)
from quire.operate.fields import Json, Row

if TYPE_CHECKING:
    from ledger_client import LedgerWriter
    from ledger_client.handle import AwaitableHandle


UNREADABLE: Final = "unreadable"
"""State, in lists, of a ledger whose record this release cannot read."""


async def create(arguments: argparse.Namespace, output: Output) -> int:
    """Create a ledger without a writer: the first client that appends to it becomes its writer."""
    from ledger_client.ledger_calls import NewLedger
    from quire.operate.appends import create_unclaimed

    creation = creation_of(arguments)
    wanted = NewLedger.of(
        creation.quorum,
        creation.ledger_id,
        creation.digest,
        creation.password,
        creation.custom_metadata,
        creation.encryption,
    )
    info = await create_unclaimed(metadata_address(arguments), wanted)
    if output.as_json:
        output.record(info_as_json(info))
    else:
        output.line(str(info.id))
        if output.remarks_to_person:
            output.remark(f"fill it (once): quire ledger append {info.id}")
    return ExitCode.DONE


async def list_all(arguments: argparse.Namespace, output: Output) -> int:
    """List every ledger, in order of their ids."""
    columns = ("ledger_id", "state", "last_entry_id", "length", "fragment_count", "quorum_text")
    unreadable: list[LedgerId] = []

    def note(event: ClientEvent) -> None:
        if isinstance(event, LedgerUnreadable):
            heappush(unreadable, event.ledger_id)

    async with LedgerClient(metadata_address(arguments), on_event=note) as client:
        with output.listing(*columns) as listing:
            async for row in _rows(client, unreadable):
                listing.add(row)
                if listing.count == arguments.limit:
                    break
    return ExitCode.DONE


async def _rows(client: LedgerClient, unreadable: list[LedgerId]) -> AsyncIterator[Row]:
    """Yield a row for each ledger, in order of their ids; `unreadable` grows during the list."""
    async for info in client.list_ledgers():
        while unreadable and unreadable[0] < info.id:
            yield _unreadable_row(heappop(unreadable))
        yield {**info_as_json(info), "quorum_text": _quorum_text(info)}
    for ledger_id in sorted(unreadable):
        yield _unreadable_row(ledger_id)


def _unreadable_row(ledger_id: LedgerId) -> Row:
    values = dict.fromkeys(("last_entry_id", "length", "fragment_count", "quorum_text"))
    return {"ledger_id": ledger_id, "state": UNREADABLE, **values}


async def show(arguments: argparse.Namespace, output: Output) -> int:
    """Print one ledger with its fragments, and the last confirmed entry of an open one."""
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    async with LedgerClient(address) as client:
        info = await client.ledger_info(ledger_id)
        row = info_as_json(info)
        if not info.is_closed and UNCLAIMED_NAME not in info.metadata:
            password = password_of(arguments)
            opening = client.open_ledger(ledger_id, password=password, encryption=AS_STORED)
            row["last_confirmed"] = None
            try:
                async with opening as reader:
                    row["last_confirmed"] = await reader.refresh_last_confirmed()
            except QuorumTimeoutError as error:
                output.remark(f"the last confirmed entry is not known: {error}")
    output.document(row, {"fragments": ("first_entry_id", "ensemble", "incoming")})
    return ExitCode.DONE


async def recover(arguments: argparse.Namespace, output: Output) -> int:
    """Fence a ledger, find its last entry and close it. Its writer is refused from then on."""
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    if arguments.unclean and not arguments.yes:
        plan = await _unclean_plan(address, ledger_id)
        raise NeedsConsentError(plan, try_next=f"quire ledger recover {ledger_id} --unclean --yes")
    async with open_cluster(address) as cluster:
        ledger, _ = await read_ledger(cluster, ledger_id)
        is_live = (
            ledger.state is LedgerState.OPEN
            and await find(cluster.store, client_path(ledger.writer)) is not None
        )
    if is_live and not arguments.yes:
        raise NeedsConsentError(
            f"ledger {ledger_id} is open, and its writer, {ledger.writer}, is running. After the "
            "recovery its appends are refused, and its unconfirmed entries may be lost",
            try_next=f"quire ledger recover {ledger_id} --yes",
        )
    async with LedgerClient(address) as client:
        password = password_of(arguments)
        if arguments.unclean:
            info = await client.recover_ledger_unclean(
                ledger_id,
                password=password,
                even_if_writer_lives=arguments.even_if_writer_lives,
            )
        else:
            info = await client.recover_ledger(ledger_id, password=password)
        output.record(info_as_json(info, short=not output.as_json))
        if info.given_up:
            await _report_given_up(client, info, output)
    return ExitCode.DONE


async def _report_given_up(client: LedgerClient, info: LedgerInfo, output: Output) -> None:
    """Print what an unclean recovery lost, and wait until the lost members are fenced."""
    from ledger_client.recovery.unclean_recovery import FENCE_FOR_S

    output.results.flush()  # the command continues
    first = info.given_up[0].first_entry_id
    held = dict.fromkeys(bookie for part in info.given_up for bookie in part.ensemble)
    output.remark(
        f"lost: every entry from {first} on, of which only {', '.join(held)} can hold copies; "
        f"`quire ledger show {info.id}` continues to show this"
    )
    output.remark(
        f"fencing {', '.join(info.given_up[-1].ensemble)} for at most {FENCE_FOR_S:.0f} s, so that "
        "a writer that reaches them ends; interrupt to stop"
    )
    not_fenced = await client.wait_for_fences(info.id)
    if not_fenced:
        output.remark(
            f"not fenced: {', '.join(not_fenced)}; a writer that reaches them, but not the "
            "metadata service, may continue: stop it"
        )


async def _unclean_plan(address: str, ledger_id: LedgerId) -> str:
    """Describe what an unclean recovery would do, and whether the members seem to be up."""
    async with open_cluster(address) as cluster:
        ledger, _ = await read_ledger(cluster, ledger_id)
        if not ledger.quorum.is_in_sync:
            raise UsageError(
                f"ledger {ledger_id} is not in in-sync mode: a single member's response is not "
                "enough",
                try_next=f"quire ledger recover {ledger_id}",
            )
        members = ledger.last_fragment.ensemble
        alive = [member for member in members if member in cluster.directory.bookies]
    advice = (
        f"{', '.join(alive)} are registered now: check them first, a clean recovery needs only one"
        if alive
        else f"none of {', '.join(members)} is registered now"
    )
    return (
        f"ledger {ledger_id} will be closed even if no member responds: acknowledged entries that "
        f"no other replica holds are lost for ever (their range is recorded); {advice}"
    )


async def delete(arguments: argparse.Namespace, output: Output) -> int:
    """Delete a ledger; its bookies free the space later."""
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    what = await _described(address, ledger_id)
    plan = f"ledger {ledger_id} ({what}) will be deleted for ever; its id is never used again"
    if not arguments.yes:
        raise NeedsConsentError(plan, try_next=f"quire ledger delete {ledger_id} --yes")
    async with LedgerClient(address) as client:
        await client.delete_ledger(ledger_id)
    output.record({"ledger_id": ledger_id, "is_deleted": True})
    return ExitCode.DONE


async def _described(address: str, ledger_id: LedgerId) -> str:
    """Describe a ledger that is to be deleted, also one whose record cannot be read."""
    async with open_cluster(address) as cluster:
        try:
            info = LedgerInfo.of((await read_ledger(cluster, ledger_id))[0])
        except MetadataFormatError as error:
            return f"{UNREADABLE}: {error.why}"
    count = "uncounted" if info.last_entry_id is None else info.last_entry_id + 1
    return f"{info.state}, {count} entries, on {', '.join(info.bookies)}"


def info_as_json(info: LedgerInfo, *, short: bool = False) -> dict[str, Json]:
    """Return the printed fields of a ledger."""
    row: dict[str, Json] = {
        "ledger_id": info.id,
        "state": str(info.state),
        "last_entry_id": info.last_entry_id,
        "length": info.length,
        "fragment_count": len(info.fragments),
    }
    if short:
        return row
    quorum = info.quorum
    row["quorum"] = quorum_as_json(quorum)
    if quorum.is_in_sync:
        row["in_sync"] = list(info.in_sync)
        row["given_up"] = fragments_as_json(info.given_up)
    if info.lost:
        row["lost"] = lost_as_json(info.lost)
    if info.encryption is not None:
        row["encryption"] = encryption_as_json(info.encryption)
    if info.owner:
        row["owner"] = info.owner
    row["digest"] = str(info.digest)
    row["created_ms"] = info.created_ms
    row["metadata"] = {name: text_or_base64(value) for name, value in info.metadata.items()}
    row["fragments"] = fragments_as_json(info.fragments)
    return row


def _quorum_text(info: LedgerInfo) -> str:
    quorum = info.quorum
    if quorum.is_in_sync:
        return f"in-sync {quorum.ensemble_size}, min {quorum.min_in_sync}"
    return f"{quorum.ensemble_size}/{quorum.write_quorum}/{quorum.ack_quorum}"


Digest = Literal["crc32c", "hmac-sha256"]

COPIES_DEFAULT: Final = 3


@dataclass(frozen=True, slots=True)
class NewLedgerOptions:
    """Properties of a ledger that a verb creates."""

    ledger_id: int | None
    quorum: Quorum
    digest: Digest
    password: bytes
    custom_metadata: Mapping[str, str | bytes]
    encryption: Encryption | PayloadEncryption | None = None

    def create_with(self, client: LedgerClient) -> "AwaitableHandle[LedgerWriter]":
        """Return a call that creates the ledger; await it or enter it."""
        return client.create_ledger(
            self.quorum,
            ledger_id=self.ledger_id,
            digest=self.digest,
            password=self.password,
            metadata=self.custom_metadata,
            encryption=self.encryption,
        )


def creation_of(arguments: argparse.Namespace, default: Quorum | None = None) -> NewLedgerOptions:
    """Read the options of `create`, `append` and `import`. Raises UsageError.

    Missing numbers follow from the given ones: as many copies as bookies, all but one to confirm.
    """
    return NewLedgerOptions(
        ledger_id=getattr(arguments, "id", None),
        quorum=_in_sync_of(arguments) if arguments.in_sync else _quorum_of(arguments, default),
        digest="hmac-sha256" if arguments.digest == "hmac-sha256" else "crc32c",
        password=password_of(arguments),
        custom_metadata=dict(_custom_pair(text) for text in arguments.meta),
        encryption=encryption_of(arguments),
    )


def _quorum_of(arguments: argparse.Namespace, default: Quorum | None) -> Quorum:
    if arguments.min_in_sync is not None or arguments.replica_lag_time_max is not None:
        raise UsageError(
            "--min-in-sync and --replica-lag-time-max have a meaning only in in-sync mode",
            try_next="add --in-sync, or leave them out",
        )
    if default is not None and arguments.ensemble is arguments.write is arguments.ack is None:
        return default
    ensemble = arguments.ensemble or arguments.write or COPIES_DEFAULT
    write = arguments.write or ensemble
    ack = arguments.ack or max(1, write - 1)
    if not ensemble >= write >= ack:
        raise UsageError(
            "a quorum needs --ensemble >= --write >= --ack >= 1, "
            f"but these are {ensemble}, {write}, {ack}"
        )
    return Quorum(ensemble=ensemble, write=write, ack=ack)


def _in_sync_of(arguments: argparse.Namespace) -> Quorum:
    if arguments.write is not None or arguments.ack is not None:
        raise UsageError(
            "with --in-sync every member writes and confirms: leave out --write and --ack"
        )
    replicas = arguments.ensemble or COPIES_DEFAULT
    least = arguments.min_in_sync or max(1, replicas - 1)
    asked_s = arguments.replica_lag_time_max
    lag_s = REPLICA_LAG_TIME_MAX_S if asked_s is None else asked_s
    deadline_s = ClientConfig().append_deadline_s
    if lag_s >= deadline_s:
        raise UsageError(
            f"--replica-lag-time-max is {lag_s:g} s, and an append fails after {deadline_s:g} s: a "
            "lagging member must leave before that",
            try_next=f"--replica-lag-time-max with less than {deadline_s:g}",
        )
    try:
        return Quorum.in_sync(replicas, least, replica_lag_time_max=lag_s)
    except ValueError as error:
        raise UsageError(str(error)) from error


def password_of(arguments: argparse.Namespace) -> bytes:
    """Read the file named by --password-file; no password without it. Raises SecretError."""
    path: str | None = arguments.password_file
    return b"" if path is None else read_ledger_password(path)


def encryption_of(arguments: argparse.Namespace) -> Encryption | None:
    """Read the file named by --key-file; None for a verb without it, or if it is not given. Raises
    KeyFileError, EncryptionUnavailableError.
    """
    path: str | None = getattr(arguments, "key_file", None)
    return None if path is None else read_key_file(path)


def _custom_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--meta must be NAME=VALUE, not {text!r}")
    return name, value


async def verify(arguments: argparse.Namespace, output: Output) -> int:
    """Read every copy up to the last confirmed entry; status 1 if any is missing or bad."""
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    password = password_of(arguments)
    async with open_cluster(address) as cluster:
        ledger, _ = await read_ledger(cluster, ledger_id)
        last = await _last_entry(address, ledger, password)
        keys = LedgerKeys.of(ledger, password)
        with Progress(output, "verified", "copies", copy_count(ledger, last)) as progress:
            async with open_pool(cluster, keys) as pool:
                reports = await verify_replicas(pool, ledger, keys, last, progress.advance)
    is_well = all(report.is_well for report in reports)
    if output.as_json:
        bookies = [_report_as_json(report) for report in reports]
        row: dict[str, Json] = {"ledger_id": ledger_id, "last_entry_id": last, "is_well": is_well}
        output.record(row | {"state": str(ledger.state), "bookies": bookies})
    else:
        _print_reports(reports, output)
        said = "every copy exists and is sound" if is_well else "copies are missing or bad"
        output.line(f"\nledger {ledger_id}, {ledger.state}, entries 0 to {last}: {said}")
    return ExitCode.DONE if is_well else ExitCode.FINDINGS


async def _last_entry(address: str, ledger: LedgerMetadata, password: bytes) -> int:
    if ledger.last_entry_id is not None:
        return ledger.last_entry_id
    async with (
        LedgerClient(address) as client,
        client.open_ledger(ledger.ledger_id, password=password, encryption=AS_STORED) as reader,
    ):
        return await reader.refresh_last_confirmed()


def _print_reports(reports: list[ReplicaReport], output: Output) -> None:
    columns = ("bookie", "verified", "missing", "bad", "differing", "error")
    with output.listing(*columns) as listing:
        for report in reports:
            listing.add(
                {
                    "bookie": report.bookie_id,
                    "verified": report.verified_count,
                    "missing": describe_ranges(report.missing) or None,
                    "bad": describe_ranges(report.bad) or None,
                    "differing": describe_ranges(report.differing) or None,
                    "error": report.error or None,
                }
            )


def _report_as_json(report: ReplicaReport) -> dict[str, Json]:
    return {
        "id": report.bookie_id,
        "is_well": report.is_well,
        "verified_count": report.verified_count,
        "missing": report.missing,
        "bad": report.bad,
        "differing": report.differing,
        "error": report.error or None,
    }
