"""`quire ledger verify`: reads every entry of every replica and reports missing and bad copies.

Leaves the reading and comparing to `ledger_client.reading.verification`.
"""

import argparse

from ledger_client import AS_STORED, LedgerClient
from ledger_client.cluster_access import open_cluster, open_pool, read_ledger
from ledger_client.digest import LedgerKeys
from ledger_client.reading.entry_ranges import describe_ranges
from ledger_client.reading.verification import ReplicaReport, expected_count, verify_replicas
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.cli.command_line import metadata_address
from quire.cli.ledger.ledger_options import password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode
from quire.operate.fields import Json


async def verify(arguments: argparse.Namespace, output: Output) -> int:
    """Read every copy up to the last confirmed entry; status 1 if any is missing or bad."""
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    password = password_of(arguments)
    async with open_cluster(address) as cluster:
        ledger, _ = await read_ledger(cluster, ledger_id)
        last = await _last_entry(address, ledger, password)
        keys = LedgerKeys.of(ledger, password)
        with Progress(output, "verified", "copies", expected_count(ledger, last)) as progress:
            async with open_pool(cluster, keys) as pool:
                reports = await verify_replicas(pool, ledger, keys, last, progress.advance)
    is_well = all(report.is_well for report in reports)
    if output.as_json:
        bookies = [_as_json(report) for report in reports]
        row: dict[str, Json] = {"ledger_id": ledger_id, "last_entry_id": last, "is_well": is_well}
        output.record(row | {"state": str(ledger.state), "bookies": bookies})
    else:
        _print(reports, output)
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


def _print(reports: list[ReplicaReport], output: Output) -> None:
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


def _as_json(report: ReplicaReport) -> dict[str, Json]:
    return {
        "id": report.bookie_id,
        "is_well": report.is_well,
        "verified_count": report.verified_count,
        "missing": report.missing,
        "bad": report.bad,
        "differing": report.differing,
        "error": report.error or None,
    }
