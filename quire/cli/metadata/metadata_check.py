"""`quire metadata check|compare`: stored metadata against itself, and against what bookies hold.

Leaves the checks to `quire.operate.assessment`, the meaning of a difference to
`quire.operate.unknown_holdings`, and a bookie's answers to its admin server.
"""

import argparse
from collections.abc import AsyncIterator
from typing import Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.deletion_feed import DeletionFeed
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import DELETION_SHARDS
from metadata.registry.registration import BookieRegistration
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import Progress, each_ledger
from quire.errors import ExitCode
from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminApiError, get_json
from quire.operate.assessment import record_findings
from quire.operate.fields import Json, Row
from quire.operate.findings import Finding
from quire.operate.unknown_holdings import Holding, meaning_of


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
    rows: list[Row] = [each.as_json() for each in findings]
    if output.as_json:
        output.record({"ledger_count": count, "finding_count": len(rows), "findings": rows})
    else:
        output.line(f"{count} ledgers, {len(formatted)} cookies: {len(rows)} findings")
        if rows:
            output.table(rows, "where", "what", "advice")
    return ExitCode.FINDINGS if findings else ExitCode.DONE


PAGE_LEDGERS: Final = 10_000
FINDINGS_MAX: Final = 10_000
"""Maximum number of ledgers that one call lists."""
COMPARED_COLUMNS: Final = ("ledger", "bookie", "entries", "last_entry_id", "what", "advice")


async def compare(arguments: argparse.Namespace, output: Output) -> int:
    """Compare every bookie that is up."""
    rows: list[Row] = []
    failed: list[str] = []
    async with open_cluster(metadata_address(arguments)) as cluster:
        deleted = await _deleted(cluster)
        known = await cluster.cookies.list_bookie_ids()
        up = cluster.directory.bookies
        failed += [f"{each}: it is down" for each in known if each not in up]
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
        for each in failed:
            output.line(f"not compared: {each}")
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
    async for ledger_id in _held(registration, identity):
        progress.advance(1)
        ledger = await _find(cluster, ledger_id)
        if isinstance(ledger, MetadataFormatError):
            continue  # `quire metadata check` reports it
        if ledger is not None and ledger.names(bookie_id):
            continue
        holding = await _holding(registration, ledger_id, identity)
        if holding is None and ledger is not None:
            continue  # released: its entries were removed
        found = meaning_of(ledger, is_deleted=ledger_id in deleted)
        count = 0 if holding is None else holding.count
        yield {
            "ledger": ledger_id,
            "bookie": bookie_id,
            "entries": count,
            "last_entry_id": None if holding is None else holding.last_entry_id,
            "what": found.what,
            "advice": found.advice,
        }


async def _find(
    cluster: Cluster, ledger_id: LedgerId
) -> LedgerMetadata | MetadataFormatError | None:
    try:
        return (await cluster.ledgers.get(ledger_id, fresh=True))[0]
    except NodeNotFoundError:
        return None
    except MetadataFormatError as error:
        return error


async def _held(registration: BookieRegistration, identity: ClientFile) -> AsyncIterator[LedgerId]:
    state = await get_json(f"{registration.admin_url}/api/v1/state", identity)
    answering = state.get("id") if isinstance(state, dict) else None
    if answering != registration.bookie_id:
        raise AdminApiError(
            f"bookie {answering} answers at {registration.admin_url}: run this on the bookie's "
            "machine, or give it an admin_host that can be reached from here"
        )
    after = -1
    while True:
        path = f"/api/v1/ledgers?after={after}&limit={PAGE_LEDGERS}"
        answer = await get_json(f"{registration.admin_url}{path}", identity)
        page = answer.get("ledgers") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(page, list):
            raise AdminApiError("its answer has no ledgers")
        for each in page:
            yield LedgerId(int(str(each)))
        if "next_after" not in answer:
            return
        after = int(str(answer["next_after"]))


async def _holding(
    registration: BookieRegistration, ledger_id: LedgerId, identity: ClientFile
) -> Holding | None:
    """Return the entries that a bookie holds of a ledger; None if it holds none."""
    path = f"/api/v1/ledgers/{ledger_id}/entries"
    try:
        answer: Json = await get_json(f"{registration.admin_url}{path}", identity)
    except AdminApiError as error:
        if "status 404" in str(error):
            return None
        raise
    ranges = answer.get("ranges") if isinstance(answer, dict) else None
    if not isinstance(ranges, list):
        raise AdminApiError("its answer has no ranges")
    return Holding.of([(int(first), int(last)) for first, last in ranges])


async def _deleted(cluster: Cluster) -> frozenset[LedgerId]:
    feed = DeletionFeed(cluster.store)
    found: list[LedgerId] = []
    for shard in range(DELETION_SHARDS):
        found += await feed.entries(shard)
    return frozenset(found)
