"""`quire cluster`: its creation, and its health: bookies that are down, ledgers that lack copies.

Leaves the checks to `quire.assessment`, losses that may come to `cluster_loss`, and versions to
`cluster_version`.
"""

import argparse
import asyncio
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.registry.cluster import create_cluster
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.restore.restore_record import is_unaccepted
from quire.assessment import (
    CHECK,
    bookie_findings,
    cluster_host_warnings,
    down_findings,
    health_sentence,
    ledger_findings,
    ledger_host_warnings,
    limbo_findings,
    lost_warnings,
    planned_warnings,
)
from quire.cli.command_line import Noun, later, metadata_address
from quire.cli.ledger_reading import each_ledger
from quire.cli.output import Json, Output
from quire.copy_counts import bookies_with_entries, fewest_copies
from quire.errors import ExitCode
from quire.findings import EXAMPLES_MAX, Finding, LedgerFinding, LedgerGroups, LedgerSample

FINDINGS_SHOWN_MAX: Final = 100
UNREADABLE: Final = "the metadata cannot be read"
UNACCEPTED: Final = Finding(
    "metadata",
    "was restored from a dump, and that is not accepted yet: nothing is collected",
    "quire metadata compare, then quire metadata accept-restore",
)


@dataclass(slots=True)
class _Findings:
    """Findings (problems) and warnings (possible problems)."""

    findings: list[Finding]
    warnings: list[Finding]
    by_ledger: list[tuple[str, LedgerFinding]] | None
    """All findings and warnings about ledgers, with their kind; None if they are not wanted."""


@dataclass(slots=True)
class _Ledgers:
    """Counts over all ledgers."""

    by_state: Counter[str] = field(default_factory=Counter)
    certain_copies: Counter[int] = field(default_factory=Counter)
    """Ledgers by the least number of certain copies of their entries."""
    holding: defaultdict[BookieId, LedgerSample] = field(
        default_factory=lambda: defaultdict(LedgerSample)
    )
    """Ledgers with entries on each bookie."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire cluster`."""
    noun = Noun("cluster", "The complete cluster.")
    noun.verb("init", _init, "create the cluster at this address, without bookies")
    health = noun.verb(
        "health", _health, "show what is up and which ledgers lack copies; status 1 if any does"
    )
    ledgers = health.add_mutually_exclusive_group()
    ledgers.add_argument("--quick", action="store_true", help="do not read every ledger's metadata")
    ledgers.add_argument(
        "--ledgers", action="store_true", help="also list every ledger with a finding or a warning"
    )
    if_lost = noun.verb(
        "if-lost",
        later("quire.cli.cluster_loss", "show_loss"),
        "show which ledgers would lose copies with these bookies; status 1 if data might be lost",
    )
    if_lost.add_argument(
        "bookies", nargs="+", metavar="ID", help="ids of bookies, as in `quire bookie list`"
    )
    noun.verb(
        "version",
        later("quire.cli.cluster_version", "show_versions"),
        "show the version of each server that is up; status 1 while they differ",
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
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        up = cluster.directory.bookies
        warnings = [*cluster_host_warnings(up), *planned_warnings(states)]
        checked = _Findings([], warnings, [] if arguments.ledgers else None)
        for each in up.values():
            state = states.get(each.bookie_id, UNCHANGED).state
            checked.findings.extend(bookie_findings(each, state))
        ledgers = None if arguments.quick else await _check_ledgers(cluster, checked, output)
        holding = None if ledgers is None else ledgers.holding
        problems, no_problems = down_findings(known, up, holding, states)
        limbo = limbo_findings(states, up)
        findings = checked.findings = [*problems, *limbo, *checked.findings]
        checked.warnings.extend(no_problems)
        if await is_unaccepted(cluster.store):
            checked.warnings.append(UNACCEPTED)
    writable = sum(each.writable for each in up.values())
    certain = None if ledgers is None else ledgers.certain_copies
    by_state = {} if ledgers is None else {str(s): ledgers.by_state[s] for s in LedgerState}
    removed = [each for each in known if states.get(each, UNCHANGED).state is Lifecycle.REMOVED]
    lifecycles = Counter(str(each.state) for each in states.values())
    row: dict[str, Json] = {
        "state": health_sentence(len(findings), certain),
        "metadata": cluster.address,
        "metadata_answer_ms": round(answer_ms, 2),
        "bookies_known": len(known) - len(removed),
        "bookies_up": len(up),
        "bookies_writable": writable,
        "bookies_not_active": {
            str(each): lifecycles[each] for each in Lifecycle if each is not Lifecycle.ACTIVE
        },
        "hosts_up": len(dict.fromkeys(each.place for each in up.values())),
        "ledgers": by_state,
        "finding_count": len(findings),
        "warning_count": len(checked.warnings),
        "is_healthy": not findings,
    }
    _print(row, checked, output)
    return ExitCode.FINDINGS if findings else ExitCode.DONE


async def _check_ledgers(cluster: Cluster, checked: _Findings, output: Output) -> _Ledgers:
    counts = _Ledgers()
    findings, warnings = LedgerGroups(), LedgerGroups()

    def add(groups: LedgerGroups, found: list[LedgerFinding]) -> None:
        groups.add(found)
        if checked.by_ledger is not None:
            kind = "finding" if groups is findings else "warning"
            checked.by_ledger += [(kind, each) for each in found]

    async for ledger_id, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            add(findings, [LedgerFinding(ledger_id, UNREADABLE, str(ledger), CHECK)])
            continue
        up = cluster.directory.bookies
        counts.by_state[ledger.state] += 1
        for bookie_id in bookies_with_entries(ledger):
            counts.holding[bookie_id].add(ledger_id)
        in_limbo = [each for each, registration in up.items() if registration.is_in_limbo]
        copies = fewest_copies(ledger, up, in_limbo)
        if copies is not None:
            counts.certain_copies[copies.certain] += 1
        add(findings, ledger_findings(ledger, up))
        add(warnings, [*lost_warnings(ledger), *ledger_host_warnings(ledger, up)])
    checked.findings += findings.findings()
    checked.warnings += warnings.findings()
    return counts


def _print(row: dict[str, Json], checked: _Findings, output: Output) -> None:
    kinds = (("findings", checked.findings), ("warnings", checked.warnings))
    if output.as_json:
        for name, found in kinds:
            row[name] = [each.as_json() for each in found[:FINDINGS_SHOWN_MAX]]
        if checked.by_ledger is not None:
            row["by_ledger"] = [_ledger_as_json(kind, each) for kind, each in checked.by_ledger]
        output.record(row)
        return
    output.record(row)
    for name, found in kinds:
        if found:
            output.line("")
            with output.listing("where", "what", "advice") as listing:
                for each in found[:FINDINGS_SHOWN_MAX]:
                    listing.add(each.as_json())
        if len(found) > FINDINGS_SHOWN_MAX:
            output.remark(f"and {len(found) - FINDINGS_SHOWN_MAX} more {name}")
    if checked.by_ledger is not None:
        output.line("")
        with output.listing("ledger", "kind", "what", "advice") as listing:
            for kind, found_one in checked.by_ledger:
                listing.add(_ledger_as_json(kind, found_one))
    elif any(each.ledgers and each.ledgers.count > EXAMPLES_MAX for _, f in kinds for each in f):
        output.line("\nevery ledger: quire cluster health --ledgers")


def _ledger_as_json(kind: str, found: LedgerFinding) -> dict[str, Json]:
    return {
        "ledger": found.ledger_id,
        "kind": kind,
        "what": found.what,
        "advice": found.advice,
    }
