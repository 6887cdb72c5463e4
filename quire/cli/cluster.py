"""`quire cluster health`: bookies that are down, and ledgers that lack copies.

Leaves the checks to `quire.assessment`.
"""

import argparse
import asyncio
from dataclasses import asdict, dataclass
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ledgers.ledger_metadata import LedgerState
from quire.assessment import (
    Finding,
    bookie_findings,
    cluster_host_warnings,
    ledger_findings,
    ledger_host_warnings,
)
from quire.cli.command_line import Noun, metadata_address
from quire.cli.output import Json, Output
from quire.cli.progress import Progress
from quire.errors import ExitCode

FINDINGS_SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Findings:
    """Findings (problems) and warnings (possible problems)."""

    findings: list[Finding]
    warnings: list[Finding]


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire cluster`."""
    noun = Noun("cluster", "The complete cluster.")
    health = noun.verb(
        "health", _health, "show what is up and which ledgers lack copies; status 1 if any does"
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
        for each in up.values():
            findings += bookie_findings(each)
        warnings = cluster_host_warnings(up)
        checked = _Findings(findings, warnings)
        counts = {} if arguments.quick else await _check_ledgers(cluster, checked, output)
    writable = sum(each.writable for each in up.values())
    row: dict[str, Json] = {
        "metadata": cluster.address,
        "metadata_answer_ms": round(answer_ms, 2),
        "bookies_known": len(known),
        "bookies_up": len(up),
        "bookies_writable": writable,
        "hosts_up": len(dict.fromkeys(each.place for each in up.values())),
        "ledgers": counts,
        "finding_count": len(findings),
        "warning_count": len(warnings),
        "is_healthy": not findings,
    }
    _print(row, checked, output)
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _check_ledgers(cluster: Cluster, checked: _Findings, output: Output) -> dict[str, int]:
    counts = {str(state): 0 for state in LedgerState}
    with Progress(output, "checked", "ledgers") as progress:
        async for ledger_id in cluster.ledgers.list_ledger_ids():
            progress.advance(1)
            try:
                ledger, _ = await cluster.ledgers.get(ledger_id)
            except NodeNotFoundError:
                continue  # deleted since it was listed
            except MetadataFormatError as error:
                checked.findings.append(
                    Finding(f"ledger {ledger_id}", str(error), "see `quire metadata check`")
                )
                continue
            counts[str(ledger.state)] += 1
            up = cluster.directory.bookies
            checked.findings.extend(ledger_findings(ledger, up))
            checked.warnings.extend(ledger_host_warnings(ledger, up))
    return counts


def _print(row: dict[str, Json], checked: _Findings, output: Output) -> None:
    kinds = (("findings", checked.findings), ("warnings", checked.warnings))
    if output.as_json:
        shown = {
            name: [asdict(each) for each in found[:FINDINGS_SHOWN_MAX]] for name, found in kinds
        }
        output.record(row | shown)
        return
    output.record(row)
    for name, found in kinds:
        if found:
            output.line("")
            with output.listing("where", "what", "advice") as listing:
                for each in found[:FINDINGS_SHOWN_MAX]:
                    listing.add(asdict(each))
        if len(found) > FINDINGS_SHOWN_MAX:
            output.remark(f"and {len(found) - FINDINGS_SHOWN_MAX} more {name}")
