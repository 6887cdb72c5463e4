"""`quire cluster health`: what is up, and which ledgers lack copies.

Leaves the judgement to `quire.assessment`.
"""

import argparse
import asyncio
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ledger_metadata import LedgerState
from quire.assessment import Finding, ledger_findings
from quire.cli.command_line import Noun, metadata_address
from quire.cli.output import Json, Output
from quire.cli.progress import Progress
from quire.errors import ExitCode

FINDINGS_SHOWN_MAX: Final = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire cluster`."""
    noun = Noun("cluster", "The cluster as a whole.")
    health = noun.verb(
        "health", _health, "tell what is up and which ledgers lack copies; status 1 if any does"
    )
    health.add_argument("--quick", action="store_true", help="do not read every ledger's metadata")
    return noun.parser


async def _health(arguments: argparse.Namespace, output: Output) -> int:
    loop = asyncio.get_running_loop()
    async with open_cluster(metadata_address(arguments)) as cluster:
        started = loop.time()
        known = await cluster.cookies.list_bookie_ids()
        answer_ms = (loop.time() - started) * 1000
        up = cluster.directory.bookies
        findings = [
            Finding(f"bookie {each}", "is not up", "start it: quire bookie run --data-dir DIR")
            for each in known
            if each not in up
        ]
        findings += [
            Finding(f"bookie {each.bookie_id}", "takes no new entries", "is its disk full?")
            for each in up.values()
            if not each.writable
        ]
        counts = {} if arguments.quick else await _judge_ledgers(cluster, findings, output)
    writable = sum(each.writable for each in up.values())
    row: dict[str, Json] = {
        "metadata": cluster.address,
        "metadata_answer_ms": round(answer_ms, 2),
        "bookies_known": len(known),
        "bookies_up": len(up),
        "bookies_writable": writable,
        "ledgers": counts,
        "finding_count": len(findings),
        "is_healthy": not findings,
    }
    _print(row, findings, output)
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _judge_ledgers(
    cluster: Cluster, findings: list[Finding], output: Output
) -> dict[str, int]:
    counts = {str(state): 0 for state in LedgerState}
    progress = Progress(output, "looked at", "ledgers")
    async for ledger_id in cluster.ledgers.list_ledger_ids():
        progress.advance(1)
        try:
            ledger, _ = await cluster.ledgers.get(ledger_id)
        except NodeNotFoundError:
            continue  # deleted since it was listed
        except MetadataFormatError as error:
            findings.append(
                Finding(f"ledger {ledger_id}", str(error), "see `quire metadata check`")
            )
            continue
        counts[str(ledger.state)] += 1
        findings += ledger_findings(ledger, cluster.directory.bookies)
    progress.end()
    return counts


def _print(row: dict[str, Json], findings: list[Finding], output: Output) -> None:
    shown = findings[:FINDINGS_SHOWN_MAX]
    if output.as_json:
        told = [{"where": f.where, "what": f.what, "advice": f.advice} for f in shown]
        output.record(row | {"findings": told})
        return
    output.record(row)
    if shown:
        output.line("")
        with output.listing("where", "what", "advice") as listing:
            for f in shown:
                listing.add({"where": f.where, "what": f.what, "advice": f.advice})
    if len(findings) > len(shown):
        output.remark(f"and {len(findings) - len(shown)} more")
