"""`quire top`: readings of all servers, and the tables of what they do."""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster
from quire.cli.command_line import lone_command, metadata_address, positive
from quire.cli.output import Output
from quire.cli.repair import CLEAR_SCREEN
from quire.errors import ExitCode
from quire.operate.fields import Json, describe_bytes
from quire.operate.repair import read_summary
from quire.operate.watch import BOOKIE, BROKER, Change, Reading, Server, read_all, servers_of


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire top`."""
    text = (
        "Show what the servers of a cluster do now: entries and bytes per second, latency, disks, "
        "topics, and the state of repair. It repeats until Ctrl-C."
    )
    command = lone_command("top", top, text, needs_cluster=True)
    command.add_argument(
        "--interval", type=positive, default=2, metavar="S", help="seconds between two readings"
    )
    command.add_argument("--once", action="store_true", help="print one table, and stop")
    return command


Readings = Mapping[Server, Reading]
BOOKIE_COLUMNS: Final = (
    *("bookie", "state", "entries_per_s", "bytes_per_s", "read_bytes_per_s", "add_p99_ms"),
    *("disk_percent", "connections", "note"),
)
BROKER_COLUMNS: Final = (
    *("broker", "records_per_s", "in_bytes_per_s", "out_bytes_per_s", "produce_p99_ms"),
    *("partitions", "not_served", "lack_replicas", "connections", "note"),
)


async def top(arguments: argparse.Namespace, output: Output) -> int:
    """Print the tables, once or until interrupted."""
    address = metadata_address(arguments)
    identity, now = identity_of(address), asyncio.get_running_loop().time
    async with open_cluster(address) as cluster:
        before: Readings = await read_all(await servers_of(cluster), identity, now)
        while True:
            await asyncio.sleep(arguments.interval)
            after: Readings = await read_all(await servers_of(cluster), identity, now)
            await _print(cluster, before, after, output, clears=not arguments.once)
            if arguments.once:
                return ExitCode.DONE
            before = after


async def _print(
    cluster: Cluster, before: Readings, after: Readings, output: Output, *, clears: bool
) -> None:
    bookies = rows_of(BOOKIE, before, after, bookie_row)
    brokers = rows_of(BROKER, before, after, broker_row)
    repair = (await read_summary(cluster)).sentence
    if output.as_json:
        output.record({"repair": repair, "bookies": bookies, "brokers": brokers})
        output.results.flush()
        return
    if clears and output.shows_to_person:
        output.write(CLEAR_SCREEN)
    output.line(f"Repair: {repair}\n")
    for columns, rows in ((BOOKIE_COLUMNS, bookies), (BROKER_COLUMNS, brokers)):
        if rows:
            output.table(rows, *columns)
            output.line("")
    output.results.flush()


def rows_of(
    kind: str,
    before: Readings,
    after: Readings,
    row: Callable[[str, Change], dict[str, Json]],
) -> list[dict[str, Json]]:
    """Return a row for each server of a kind; one with a note if its metrics are not known."""
    rows: list[dict[str, Json]] = []
    for server, reading in after.items():
        if server.kind != kind:
            continue
        earlier = before.get(server)
        if reading.scrape is None:
            rows.append({kind: server.name, "note": reading.why})
        elif earlier is None or earlier.scrape is None:
            rows.append({kind: server.name, "note": "it has just come"})
        else:
            rows.append(row(server.name, Change(earlier.scrape, reading.scrape)))
    return rows


def bookie_row(name: str, change: Change) -> dict[str, Json]:
    """Return what a bookie does."""
    free = change.gauge("quire_bookie_storage_disk_free_bytes")
    total = change.gauge("quire_bookie_storage_disk_total_bytes")
    used = None if free is None or not total else round(100 * (1 - free / total))
    return {
        "bookie": name,
        "state": "up" if change.gauge("quire_bookie_storage_is_writable") else "read-only",
        "entries_per_s": _whole(change.rate("quire_bookie_storage_entries_added_total")),
        "bytes_per_s": _whole(change.rate("quire_bookie_storage_bytes_added_total")),
        "read_bytes_per_s": _whole(change.rate("quire_bookie_storage_bytes_read_total")),
        "add_p99_ms": _ms(change.high_s("quire_bookie_add_latency_seconds")),
        "disk_percent": used,
        "connections": _whole(change.gauge("quire_bookie_connections_now")),
        "note": _bookie_note(change),
    }


def _bookie_note(change: Change) -> str:
    notes = []
    if change.gauge("quire_bookie_limbo"):
        notes.append("in limbo")
    damaged = change.gauge("quire_bookie_storage_damaged_entries")
    if damaged:
        notes.append(f"{damaged:.0f} damaged entries")
    queued = change.gauge("quire_bookie_storage_queue_bytes")
    if queued:
        notes.append(f"{describe_bytes(round(queued))} queued")
    return ", ".join(notes)


def broker_row(name: str, change: Change) -> dict[str, Json]:
    """Return what a broker does."""
    return {
        "broker": name,
        "records_per_s": _whole(change.rate("quire_broker_produce_records_total")),
        "in_bytes_per_s": _whole(change.rate("quire_broker_produce_bytes_total")),
        "out_bytes_per_s": _whole(change.rate("quire_broker_fetch_bytes_total")),
        "produce_p99_ms": _ms(change.high_s("quire_broker_produce_latency_seconds")),
        "partitions": _whole(change.gauge("quire_broker_partitions")),
        "not_served": _whole(change.gauge("quire_broker_partitions_not_served")),
        "lack_replicas": _whole(change.gauge("quire_broker_partitions_under_replicated")),
        "connections": _whole(change.gauge("quire_broker_connections_now")),
        "note": "",
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)
