"""`quire cluster`: its creation, and its health: bookies that are down, ledgers that lack copies.

Leaves the checks to `quire.operate.health`, losses that may come to `cluster_loss`, and versions to
`cluster_version`.
"""

import argparse
import os
from random import Random
from typing import Final

from ledger_client.cluster_access import open_cluster
from metadata.registry.cluster import create_cluster
from quire.cli.command_line import Noun, later, metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import ExitCode
from quire.operate.fields import Json
from quire.operate.findings import EXAMPLES_MAX, LedgerFinding, by_advice
from quire.operate.health import Health, check_health, health_as_json

FINDINGS_SHOWN_MAX: Final = 100


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
    report = noun.verb(
        "report",
        later("quire.cli.watching.report", "report"),
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


def _print(row: dict[str, Json], health: Health, output: Output) -> None:
    kinds = (("findings", health.findings), ("warnings", health.warnings))
    if output.as_json:
        for name, found in kinds:
            row[name] = [each.as_json() for each in found[:FINDINGS_SHOWN_MAX]]
        if health.by_ledger is not None:
            row["by_ledger"] = [_ledger_as_json(kind, each) for kind, each in health.by_ledger]
        output.record(row)
        return
    output.record(row)
    for name, found in kinds:
        if found:
            output.line("")
            with output.listing("where", "what", "advice") as listing:
                for each in by_advice(found[:FINDINGS_SHOWN_MAX]):
                    listing.add(each.as_json())
        if len(found) > FINDINGS_SHOWN_MAX:
            output.remark(f"and {len(found) - FINDINGS_SHOWN_MAX} more {name}")
    if health.by_ledger is not None:
        output.line("")
        with output.listing("ledger", "kind", "what", "advice") as listing:
            for kind, found_one in health.by_ledger:
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
