"""`quire repair scrub`: the scrubs of all bookies, and requests for a scrub at once.

A request for all bookies is a setting of the cluster, and one for a single bookie is in its record;
bookies follow both. Leaves the text of a row to `quire.operate.scrub_summary`.
"""

import argparse

from ledger_client.cluster_access import Cluster, open_cluster, wall_clock_ms
from metadata.ids import BookieId
from metadata.repair.scrub import NEVER_SCRUBBED
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.scrub_summary import scrubs_as_json

COLUMNS = ("id", "scrub", "checked_bytes", "bad_entries", "bad_ranges")


class ScrubOffError(CommandError):
    """Nothing is checked, because the rate of scrubs is 0."""


async def scrub(arguments: argparse.Namespace, output: Output) -> int:
    """Request a scrub if that is wanted, and list the scrubs of bookies, of all by default."""
    wanted = [BookieId(each) for each in arguments.bookies]
    async with open_cluster(metadata_address(arguments)) as cluster:
        known = await cluster.cookies.list_bookie_ids()
        for bookie_id in wanted:
            if bookie_id not in known:
                raise NoSuchBookieError(bookie_id)
        settings = await RepairSettingsStore(cluster.store, cluster.rng).get()
        if arguments.now:
            settings = await _request(cluster, settings, wanted)
        records = await ScrubStore(cluster.store, cluster.rng).get_all()
        shown = {each: records.get(each, NEVER_SCRUBBED) for each in wanted or sorted(known)}
        with output.listing(*COLUMNS) as listing:
            for row in scrubs_as_json(shown, settings, wall_clock_ms()):
                listing.add(row)
    return ExitCode.DONE


async def _request(
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
