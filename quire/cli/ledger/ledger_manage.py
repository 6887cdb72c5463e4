"""`quire ledger create|list|show|recover|delete`.

Leaves the protocol to the client, and claims of created ledgers to `quire.operate.claims`.
"""

import argparse
from collections.abc import AsyncIterator
from heapq import heappop, heappush
from typing import Final

from ledger_client import (
    AS_STORED,
    ClientEvent,
    LedgerClient,
    LedgerInfo,
    LedgerUnreadable,
    QuorumTimeoutError,
)
from ledger_client.cluster_access import open_cluster, read_ledger
from metadata.errors import MetadataFormatError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerState
from metadata.paths import client_path
from metadata.store.interface import find
from quire.cli.command_line import metadata_address
from quire.cli.ledger.ledger_options import creation_of, password_of
from quire.cli.output import Output
from quire.errors import ExitCode, NeedsConsentError, UsageError
from quire.operate.as_json import (
    encryption_as_json,
    fragments_as_json,
    lost_as_json,
    text_or_base64,
)
from quire.operate.fields import Json, Row

UNREADABLE: Final = "unreadable"
"""State, in lists, of a ledger whose record this release cannot read."""


async def create(arguments: argparse.Namespace, output: Output) -> int:
    """Create a ledger without a writer: the first client that appends to it becomes its writer."""
    from ledger_client.ledger_calls import NewLedger
    from quire.operate.claims import create_unclaimed

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
    if output.as_json:
        output.record(row)
        return ExitCode.DONE
    fragments = row.pop("fragments")
    assert isinstance(fragments, list)
    output.record(row)
    output.line("")
    with output.listing("first_entry_id", "ensemble", "incoming") as listing:
        for fragment in fragments:
            listing.add(fragment)
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
    from ledger_client.recovery.late_fences import FENCE_FOR_S

    output.results.flush()  # the command continues
    first = info.given_up[0].first_entry_id
    held = dict.fromkeys(each for part in info.given_up for each in part.ensemble)
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
        alive = [each for each in members if each in cluster.directory.bookies]
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
    row["quorum"] = {
        "mode": str(quorum.mode),
        "ensemble": quorum.ensemble_size,
        "write": quorum.write_quorum,
        "ack": quorum.ack_quorum,
        "min_in_sync": quorum.min_in_sync if quorum.is_in_sync else None,
    }
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
