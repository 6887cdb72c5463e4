"""`quire cluster`: its creation, and its health: bookies that are down, ledgers that lack copies.

Leaves the checks to `quire.assessment`, and losses that may come to `cluster_loss`.
"""

import argparse
import asyncio
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.registry.cluster import create_cluster
from quire.assessment import (
    Finding,
    bookie_findings,
    cluster_host_warnings,
    down_findings,
    health_sentence,
    ledger_findings,
    ledger_host_warnings,
)
from quire.cli.command_line import Noun, later, metadata_address
from quire.cli.ledger_reading import each_ledger
from quire.cli.output import Json, Output
from quire.copy_counts import bookies_with_entries, fewest_copies
from quire.errors import ExitCode

FINDINGS_SHOWN_MAX: Final = 100


@dataclass(slots=True)
class _Findings:
    """Findings (problems) and warnings (possible problems)."""

    findings: list[Finding]
    warnings: list[Finding]


@dataclass(slots=True)
class _Ledgers:
    """Counts over all ledgers."""

    by_state: Counter[str] = field(default_factory=Counter)
    certain_copies: Counter[int] = field(default_factory=Counter)
    """Ledgers by the least number of certain copies of their entries."""
    holding: Counter[BookieId] = field(default_factory=Counter)
    """Ledgers with entries on each bookie."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire cluster`."""
    noun = Noun("cluster", "The complete cluster.")
    noun.verb("init", _init, "create the cluster at this address, without bookies")
    health = noun.verb(
        "health", _health, "show what is up and which ledgers lack copies; status 1 if any does"
    )
    health.add_argument("--quick", action="store_true", help="do not read every ledger's metadata")
    if_lost = noun.verb(
        "if-lost",
        later("quire.cli.cluster_loss", "show_loss"),
        "show which ledgers would lose copies with these bookies; status 1 if data might be lost",
    )
    if_lost.add_argument(
        "bookies", nargs="+", metavar="ID", help="ids of bookies, as in `quire bookie list`"
    )
    return noun.parser


async def _init(arguments: argparse.Namespace, output: Output) -> int:
    address = metadata_address(arguments)
    instance, is_new = await create_cluster(address, Random(os.urandom(16)))
    output.record({"metadata": address, "instance": instance.hex(), "created": is_new})
    return ExitCode.DONE


async def _health(arguments: argparse.Namespace, output: Output) -> int:
    loop = asyncio.get_running_loop()
    async with open_cluster(metadata_address(arguments)) as cluster:
        started = loop.time()
        known = await cluster.cookies.list_bookie_ids()
        answer_ms = (loop.time() - started) * 1000
        up = cluster.directory.bookies
        checked = _Findings([], cluster_host_warnings(up))
        for each in up.values():
            checked.findings.extend(bookie_findings(each))
        ledgers = None if arguments.quick else await _check_ledgers(cluster, checked, output)
        holding = None if ledgers is None else ledgers.holding
        problems, warnings = down_findings(known, up, holding)
        findings = checked.findings = [*problems, *checked.findings]
        checked.warnings.extend(warnings)
    writable = sum(each.writable for each in up.values())
    certain = None if ledgers is None else ledgers.certain_copies
    states = {} if ledgers is None else {str(s): ledgers.by_state[s] for s in LedgerState}
    row: dict[str, Json] = {
        "state": health_sentence(len(findings), certain),
        "metadata": cluster.address,
        "metadata_answer_ms": round(answer_ms, 2),
        "bookies_known": len(known),
        "bookies_up": len(up),
        "bookies_writable": writable,
        "hosts_up": len(dict.fromkeys(each.place for each in up.values())),
        "ledgers": states,
        "finding_count": len(findings),
        "warning_count": len(checked.warnings),
        "is_healthy": not findings,
    }
    _print(row, checked, output)
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _check_ledgers(cluster: Cluster, checked: _Findings, output: Output) -> _Ledgers:
    counts = _Ledgers()
    async for ledger_id, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            checked.findings.append(
                Finding(f"ledger {ledger_id}", str(ledger), "see `quire metadata check`")
            )
            continue
        up = cluster.directory.bookies
        counts.by_state[ledger.state] += 1
        counts.holding.update(bookies_with_entries(ledger))
        copies = fewest_copies(ledger, up)
        if copies is not None:
            counts.certain_copies[copies.certain] += 1
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
