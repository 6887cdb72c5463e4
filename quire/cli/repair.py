"""`quire repair status|list|explain|run|scrub|throttle|pause|resume|settings`.

A request for a scrub of all bookies is a setting of the cluster, and one for a single bookie is in
its record; bookies follow both.
"""

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from ledger_client.cluster_access import Cluster, open_cluster, read_ledger, wall_clock_ms
from metadata.ids import BookieId, LedgerId
from metadata.repair.jobs import JobState
from metadata.repair.scrub import NEVER_SCRUBBED
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, UsageError
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.repair import (
    TABLES,
    job_as_json,
    jobs_as_json,
    read_explanation,
    read_jobs,
    read_summary,
    request_repair,
    scrubs_as_json,
)

CLEAR_SCREEN = "\x1b[H\x1b[2J"


async def status(arguments: argparse.Namespace, output: Output) -> int:
    """Print the state of repair, once or until interrupted."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        while True:
            summary = await read_summary(cluster)
            if arguments.watch and output.shows_to_person:
                output.write(CLEAR_SCREEN)
            output.document(summary.as_json(), {table.name: table.columns for table in TABLES})
            output.results.flush()
            if not arguments.watch:
                return ExitCode.DONE
            await asyncio.sleep(arguments.interval)
            if not output.as_json:
                output.line("")


async def list_jobs(arguments: argparse.Namespace, output: Output) -> int:
    """List the published jobs in the order in which they are done."""
    columns = ("ledger", "class", "state", "bytes", "worker", "reasons", "blocked_reason")
    async with open_cluster(metadata_address(arguments)) as cluster:
        jobs = [
            job
            for job in await read_jobs(cluster, arguments.urgency)
            if not (
                (arguments.blocked and job.state is not JobState.BLOCKED)
                or (arguments.lost and job.state is not JobState.LOST)
            )
        ]
        output.table(await jobs_as_json(cluster, jobs), *columns)
    return ExitCode.DONE


async def request(arguments: argparse.Namespace, output: Output) -> int:
    """Publish jobs of the first class for ledgers; workers find out what they need."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        published = await request_repair(cluster, [LedgerId(id_) for id_ in arguments.ledgers])
        output.table(
            ({"ledger": ledger_id, "published": is_new} for ledger_id, is_new in published.items()),
            "ledger",
            "published",
        )
    return ExitCode.DONE


async def explain(arguments: argparse.Namespace, output: Output) -> int:
    """Print what each fragment of a ledger lacks, and the state of its job."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        ledger, _ = await read_ledger(cluster, LedgerId(arguments.ledger))
        explanation = await read_explanation(cluster, ledger, wall_clock_ms())
    job, claim = explanation.job, explanation.claim
    row = explanation.as_json() | {"job": None if job is None else job_as_json(job, claim)}
    if output.as_json:
        output.record(row)
        return ExitCode.DONE
    fragments, damaged = row.pop("fragments"), row.pop("damaged")
    row["job"] = "; ".join(job.reasons) if job is not None else None
    output.record(row)
    output.line("")
    with output.listing("first_entry_id", "bookies", "incoming", "lacks") as listing:
        assert isinstance(fragments, list), "a ledger has fragments"
        for fragment in fragments:
            listing.add(fragment)
    if not damaged:
        return ExitCode.DONE
    output.line("\ndamaged entries")
    with output.listing("bookie", "first_entry_id", "last_entry_id", "repair") as listing:
        assert isinstance(damaged, list), "they are rows"
        for part in damaged:
            listing.add(part)
    return ExitCode.DONE


SCRUB_COLUMNS = ("id", "scrub", "checked_bytes", "bad_entries", "bad_ranges")


class ScrubOffError(CommandError):
    """Nothing is checked, because the rate of scrubs is 0."""


async def scrub(arguments: argparse.Namespace, output: Output) -> int:
    """Request a scrub if that is wanted, and list the scrubs of bookies, of all by default."""
    wanted = [BookieId(bookie) for bookie in arguments.bookies]
    async with open_cluster(metadata_address(arguments)) as cluster:
        known = await cluster.cookies.list_bookie_ids()
        for bookie_id in wanted:
            if bookie_id not in known:
                raise NoSuchBookieError(bookie_id)
        settings = await RepairSettingsStore(cluster.store, cluster.rng).get()
        if arguments.now:
            settings = await _request_scrub(cluster, settings, wanted)
        records = await ScrubStore(cluster.store, cluster.rng).get_all()
        shown = {bookie: records.get(bookie, NEVER_SCRUBBED) for bookie in wanted or sorted(known)}
        output.table(scrubs_as_json(shown, settings, wall_clock_ms()), *SCRUB_COLUMNS)
    return ExitCode.DONE


async def _request_scrub(
    cluster: Cluster, settings: RepairSettings, wanted: list[BookieId]
) -> RepairSettings:
    if not settings.scrub_bytes_per_s:
        raise ScrubOffError(
            "scrubs are off: nothing was requested",
            try_next="quire repair settings scrub_bytes_per_s=4000000",
        )
    now_ms = wall_clock_ms()
    if not wanted:
        store = RepairSettingsStore(cluster.store, cluster.rng)
        return await store.change(scrub_requested_ms=now_ms)
    scrubs = ScrubStore(cluster.store, cluster.rng)
    for bookie_id in wanted:
        await scrubs.request(bookie_id, now_ms)
    return settings


async def throttle(arguments: argparse.Namespace, output: Output) -> int:
    """Limit the bytes per second of all copying, and to or from one bookie if that is given."""
    values = {"bytes_per_s": arguments.rate}
    if arguments.per_source is not None:
        values["source_bytes_per_s"] = arguments.per_source
    if arguments.per_bookie is not None:
        values["bookie_bytes_per_s"] = arguments.per_bookie
    return await _change_settings(arguments, output, values)


async def pause(arguments: argparse.Namespace, output: Output) -> int:
    """Begin no repair of a ledger; it goes on by itself when the time is over."""
    until_ms = wall_clock_ms() + arguments.pause_s * 1000
    status = await _change_settings(arguments, output, {"paused_until_ms": until_ms})
    if not output.as_json:
        output.remark("ledgers under way are finished: `quire repair throttle RATE` slows them")
    return status


async def resume(arguments: argparse.Namespace, output: Output) -> int:
    """End a pause."""
    return await _change_settings(arguments, output, {"paused_until_ms": 0})


async def settings(arguments: argparse.Namespace, output: Output) -> int:
    """Print all settings, after the given changes."""
    return await _change_settings(arguments, output, changes_of(arguments.changes))


def changes_of(words: list[str]) -> dict[str, int]:
    """Return the settings in words of the form `name=value`. Raises UsageError."""
    values: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text.isascii() or not text.isdecimal():
            raise UsageError(
                f"{word!r} is not a setting: write NAME=VALUE with a whole number",
                try_next="quire repair settings   (shows the names)",
            )
        values[name] = int(text)
    return values


async def _change_settings(
    arguments: argparse.Namespace, output: Output, values: Mapping[str, int]
) -> int:
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = RepairSettingsStore(cluster.store, cluster.rng)
        settings = await (store.change(**values) if values else store.get())
    output.record(asdict(settings))
    return ExitCode.DONE
