"""`quire bookie entry|compare`: direct reads of the copies of a ledger that single running bookies
hold.
"""

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bookie.storage.writability import Reason, reasons_of
from bookie.wire.messages import Status
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import Cluster, open_cluster, open_pool, read_ledger
from ledger_client.digest import LedgerKeys
from ledger_client.errors import UnauthorizedError
from ledger_client.reading.replica_reading import (
    ComparedRange,
    DigestVerdict,
    RangeVerdict,
    ReplicaReading,
    StoredEntry,
    compare_replicas,
    read_stored_entry,
)
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.copies import ranges_by_bookie
from metadata.ledgers.entry_ranges import without
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.cli.command_line import metadata_address
from quire.cli.ledger import password_of
from quire.cli.ledger_rescue import open_repair_pool
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, UsageError
from quire.operate.as_json import data_as_json
from quire.operate.bookie_changes import BookieDownError, NoSuchBookieError
from quire.operate.fields import Json
from quire.operate.held_ledgers import find_ledger
from quire.repair.rescue import attach_copies

COMPARED_COLUMNS: Final = ("first", "last", "entries", "verdict", "finding")


class ReplicaError(CommandError):
    """A bookie did not return the requested data."""

    def __init__(self, code: ExitCode, message: str, *, try_next: str) -> None:
        super().__init__(message, try_next=try_next)
        self.code = code


async def entry(arguments: argparse.Namespace, output: Output) -> int:
    """Print one bookie's copy of an entry; status 6 if its digest is invalid."""
    bookie_id, entry_id = BookieId(arguments.bookie), EntryId(arguments.entry)
    ledger_id, password = LedgerId(arguments.ledger), password_of(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        ledger = await find_ledger(cluster, ledger_id)
        if isinstance(ledger, MetadataFormatError):  # the bookie knows enough
            ledger = None
        await _check_up(cluster, bookie_id)
        async with _opened(cluster, ledger_id, ledger, bookie_id, password) as (pool, keys):
            has_password = arguments.password_file is not None and not keys.lacks_mac_key
            try:
                stored = await read_stored_entry(
                    pool, bookie_id, keys, entry_id, has_password=has_password
                )
            except BookieCallError as error:
                raise _explain(error, cluster, ledger_id, ledger, entry_id) from error
    _print_entry(arguments, output, stored)
    is_bad = stored.verdict is DigestVerdict.INVALID
    return ExitCode.DAMAGED if is_bad else ExitCode.DONE


@asynccontextmanager
async def _opened(
    cluster: Cluster,
    ledger_id: LedgerId,
    ledger: LedgerMetadata | None,
    bookie_id: BookieId,
    password: bytes,
) -> AsyncIterator[tuple[BookiePool, LedgerKeys]]:
    """Open connections that present a ledger's key. Without metadata, it is the key that the bookie
    stores. Raises ReplicaError, LedgerError.
    """
    if ledger is not None:
        keys = LedgerKeys.of(ledger, password)
        async with open_pool(cluster, keys) as pool:
            yield pool, keys
        return
    async with open_repair_pool(cluster) as pool:
        try:
            stored_keys = await attach_copies(pool, ledger_id, [bookie_id], password)
        except UnauthorizedError as error:
            text = (
                f"the metadata does not know ledger {ledger_id}, and bookie {bookie_id} returns "
                "entries of such a ledger only to who may repair"
            )
            hint = "quire ledger list"
            raise ReplicaError(ExitCode.NOT_FOUND, text, try_next=hint) from error
        if stored_keys is None:
            text = f"neither the metadata nor bookie {bookie_id} knows ledger {ledger_id}"
            hint = "quire metadata compare"
            raise ReplicaError(ExitCode.NOT_FOUND, text, try_next=hint)
        yield pool, stored_keys


async def compare(arguments: argparse.Namespace, output: Output) -> int:
    """Compare two bookies' copies of a ledger; status 1 if any is bad or missing."""
    a, b = BookieId(arguments.a), BookieId(arguments.b)
    ledger_id, password = LedgerId(arguments.ledger), password_of(arguments)
    if a == b:
        raise UsageError(f"A and B are both {a}", try_next="quire ledger show " + str(ledger_id))
    has_findings = False
    async with open_cluster(metadata_address(arguments)) as cluster:
        ledger, _ = await read_ledger(cluster, ledger_id)
        await _check_up(cluster, a)
        await _check_up(cluster, b)
        keys = LedgerKeys.of(ledger, password)
        findings = _Findings(ledger, a, b)
        async with open_pool(cluster, keys) as pool:
            readings = ReplicaReading(pool, a, keys), ReplicaReading(pool, b, keys)
            try:
                with output.listing(*COMPARED_COLUMNS) as listing:
                    async for compared in compare_replicas(*readings):
                        finding = findings.judge(compared)
                        has_findings = has_findings or finding is not None
                        listing.add(_compared_row(compared, finding))
            except BookieCallError as error:
                raise _explain(error, cluster, ledger_id, ledger, None) from error
    return ExitCode.FINDINGS if has_findings else ExitCode.DONE


class _Findings:
    """Decisions, by the ledger's metadata, which differences between two bookies are faults."""

    def __init__(self, ledger: LedgerMetadata, a: BookieId, b: BookieId) -> None:
        self._ledger = ledger
        self._names = {RangeVerdict.ONLY_A: b, RangeVerdict.ONLY_B: a}
        self._last = -1 if ledger.last_entry_id is None else ledger.last_entry_id
        self._expected = ranges_by_bookie(ledger, self._last)

    def judge(self, compared: ComparedRange) -> str | None:
        first, last, verdict = compared
        missing_at = self._names.get(verdict)
        if missing_at is None:
            return None if verdict is RangeVerdict.EQUAL else f"entries are {verdict.value}"
        if self._ledger.last_entry_id is None:
            return None  # an open ledger: adds may be under way
        wanted = self._expected.get(missing_at, [])
        is_wanted = without([(first, last)], wanted) != [(first, last)]
        return f"missing at {missing_at}" if is_wanted else None


def _compared_row(compared: ComparedRange, finding: str | None) -> dict[str, Json]:
    return {
        "first": compared.first,
        "last": compared.last,
        "entries": compared.last - compared.first + 1,
        "verdict": compared.verdict.value,
        "finding": finding,
    }


def _print_entry(arguments: argparse.Namespace, output: Output, stored: StoredEntry) -> None:
    row: dict[str, Json] = {
        "id": arguments.bookie,
        "ledger_id": arguments.ledger,
        "entry_id": arguments.entry,
        "bytes": len(stored.payload),
        "verdict": stored.verdict.value,
        "reason": stored.reason or None,
        "digest": f"{stored.digest:08x}",
        "batch_first": stored.batch_first,
        "batch_last": stored.batch_last,
        "batch_lac": stored.batch_lac,
    }
    if arguments.to is not None:
        Path(arguments.to).write_bytes(stored.payload)
        output.record(row | {"written_to": arguments.to})
    elif arguments.raw:
        sys.stdout.buffer.write(stored.payload)
        sys.stdout.buffer.flush()
        output.remark(f"{len(stored.payload)} bytes, digest {stored.verdict.value}")
    else:
        output.record(row | data_as_json("data", stored.payload))


async def _check_up(cluster: Cluster, bookie_id: BookieId) -> None:
    """Check that a bookie is up. Raises NoSuchBookieError, BookieDownError."""
    if bookie_id in cluster.directory.bookies:
        return
    if bookie_id not in await cluster.cookies.list_bookie_ids():
        raise NoSuchBookieError(bookie_id)
    raise BookieDownError(
        f"bookie {bookie_id} is not up: only a running bookie can be read",
        try_next="start it, or inspect its directory: quire bookie dump SEGMENT_FILE",
    )


def _explain(
    error: BookieCallError,
    cluster: Cluster,
    ledger_id: LedgerId,
    ledger: LedgerMetadata | None,
    entry_id: int | None,
) -> ReplicaError:
    """Return the error for a failed read: the reason, and the next step."""
    bookie_id = error.bookie_id
    what = f"ledger {ledger_id}" + ("" if entry_id is None else f" entry {entry_id}")
    match error.status:
        case Status.NO_SUCH_LEDGER:
            text = f"bookie {bookie_id} holds nothing of ledger {ledger_id}"
            return ReplicaError(ExitCode.NOT_FOUND, text, try_next=f"quire ledger show {ledger_id}")
        case Status.NO_SUCH_ENTRY:
            text = f"bookie {bookie_id} does not hold {what}{_named(ledger, bookie_id, entry_id)}"
            return ReplicaError(ExitCode.NOT_FOUND, text, try_next=f"quire ledger show {ledger_id}")
        case Status.DELETED:
            text = f"bookie {bookie_id} has deleted ledger {ledger_id} and refuses its id"
            hint = "check the other bookies: quire ledger verify " + str(ledger_id)
            return ReplicaError(ExitCode.NOT_FOUND, text, try_next=hint)
        case Status.UNAUTHORIZED:
            text = f"bookie {bookie_id} refuses {what}: the ledger has a different password"
            return ReplicaError(ExitCode.REFUSED, text, try_next="--password-file FILE")
        case Status.UNKNOWN:
            return _explain_unknown(cluster, bookie_id, ledger_id, what)
        case _:
            is_down = error.failure is CallFailure.NOT_REGISTERED
            hint = "start the bookie" if is_down else f"quire bookie info {bookie_id}"
            return ReplicaError(ExitCode.UNAVAILABLE, str(error), try_next=hint)


def _explain_unknown(
    cluster: Cluster, bookie_id: BookieId, ledger_id: LedgerId, what: str
) -> ReplicaError:
    registration = cluster.directory.bookies.get(bookie_id)
    reasons = [] if registration is None else reasons_of(registration.features)
    if Reason.LIMBO in reasons:
        text = (
            f"bookie {bookie_id} does not know whether it held {what}: it is in limbo, because "
            "stored data may have been lost"
        )
        hint = f"quire bookie info {bookie_id}"
        return ReplicaError(ExitCode.UNAVAILABLE, text, try_next=hint)
    text = f"bookie {bookie_id} holds {what}, and its copy is damaged"
    return ReplicaError(ExitCode.DAMAGED, text, try_next=f"quire ledger verify {ledger_id}")


def _named(ledger: LedgerMetadata | None, bookie_id: BookieId, entry_id: int | None) -> str:
    """Describe whether the metadata names the bookie for an entry, or which bookies it names."""
    if entry_id is None or ledger is None:
        return ""
    if ledger.last_entry_id is not None and entry_id > ledger.last_entry_id:
        return f": the ledger ends at entry {ledger.last_entry_id}"
    expected = ranges_by_bookie(ledger, entry_id)
    named = [bookie for bookie, ranges in expected.items() if ranges and ranges[-1][1] == entry_id]
    if bookie_id in named:
        return ", though the ledger's metadata names it for this entry: the copy is missing"
    return f": the ledger's metadata names {', '.join(named) or 'no bookie'} for this entry"
