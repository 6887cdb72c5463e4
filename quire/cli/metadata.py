"""`quire metadata dump|check`: all stored metadata of a cluster, and its consistency.

Leaves the checks to `quire.assessment`.

Format of a dump: one JSON object per line, each with its `kind`: instance, cookie, bookie, client,
ledger.
"""

import argparse
import json
from collections.abc import AsyncIterator
from dataclasses import asdict

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import CLIENTS, INSTANCE, LEDGER_IDS
from metadata.store.interface import find
from quire.assessment import Finding, record_findings
from quire.cli.as_json import metadata_as_json, registration_as_json
from quire.cli.command_line import Noun, metadata_address
from quire.cli.output import Output, Row
from quire.cli.progress import Progress
from quire.errors import ExitCode


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire metadata`."""
    noun = Noun("metadata", "The stored metadata of the cluster.")
    noun.verb("dump", _dump, "print everything stored, one JSON object per line")
    noun.verb("check", _check, "read every record and compare them; status 1 if any is wrong")
    return noun.parser


async def _dump(arguments: argparse.Namespace, output: Output) -> int:
    async with open_cluster(metadata_address(arguments)) as cluster:
        async for row in _rows(cluster):
            output.line(json.dumps(row))
    return ExitCode.DONE


async def _check(arguments: argparse.Namespace, output: Output) -> int:
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
        with Progress(output, "checked", "ledgers") as progress:
            async for ledger_id, ledger in _ledgers(cluster):
                count += 1
                progress.advance(1)
                if isinstance(ledger, MetadataFormatError):
                    findings.append(Finding(f"ledger {ledger_id}", str(ledger), "restore it"))
                else:
                    findings += record_findings(ledger[0], formatted)
    rows: list[Row] = [asdict(each) for each in findings]
    if output.as_json:
        output.record({"ledger_count": count, "finding_count": len(rows), "findings": rows})
    else:
        output.line(f"{count} ledgers, {len(formatted)} cookies: {len(rows)} findings")
        if rows:
            with output.listing("where", "what", "advice") as listing:
                for row in rows:
                    listing.add(row)
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _rows(cluster: Cluster) -> AsyncIterator[Row]:
    for path, kind in ((INSTANCE, "instance"), (LEDGER_IDS, "ledger ids")):
        stored = await find(cluster.store, path, fresh=False)
        if stored is None:
            continue
        yield {"kind": kind, "path": path, "value": stored.value.hex(), "version": stored.version}
    for bookie_id in await cluster.cookies.list_bookie_ids():
        try:
            cookie, version = await cluster.cookies.get(bookie_id)
        except MetadataError as error:
            yield {"kind": "cookie", "id": bookie_id, "error": str(error)}
            continue
        yield {
            "kind": "cookie",
            "id": bookie_id,
            "created_ms": cookie.created_ms,
            "directory_count": cookie.directory_count,
            "version": version,
        }
    for registration in cluster.directory.bookies.values():
        yield {"kind": "bookie", **registration_as_json(registration)}
    for name in await cluster.store.children(CLIENTS):
        yield {"kind": "client", "id": name}
    async for ledger_id, ledger in _ledgers(cluster):
        if isinstance(ledger, MetadataFormatError):
            yield {"kind": "ledger", "ledger_id": ledger_id, "error": str(ledger)}
        else:
            yield {"kind": "ledger", **metadata_as_json(ledger[0]), "version": ledger[1]}


async def _ledgers(
    cluster: Cluster,
) -> AsyncIterator[tuple[LedgerId, tuple[LedgerMetadata, Version] | MetadataFormatError]]:
    async for ledger_id in cluster.ledgers.list_ledger_ids():
        try:
            yield ledger_id, await cluster.ledgers.get(ledger_id)
        except MetadataFormatError as error:
            yield ledger_id, error
        except NodeNotFoundError:
            continue  # deleted since it was listed
