"""`quire repair throttle|pause|resume|settings`: settings of repair, changed while it runs.

Leaves the settings and their ranges to `metadata.repair.settings`.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict

from ledger_client.cluster_access import open_cluster, wall_clock_ms
from metadata.repair.settings_store import RepairSettingsStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError


async def throttle(arguments: argparse.Namespace, output: Output) -> int:
    """Limit the bytes per second of all copying, and to or from one bookie if that is given."""
    values = {"bytes_per_s": arguments.rate}
    if arguments.per_source is not None:
        values["source_bytes_per_s"] = arguments.per_source
    if arguments.per_bookie is not None:
        values["bookie_bytes_per_s"] = arguments.per_bookie
    return await _change(arguments, output, values)


async def pause(arguments: argparse.Namespace, output: Output) -> int:
    """Begin no repair of a ledger; it goes on by itself when the time is over."""
    until_ms = wall_clock_ms() + arguments.pause_s * 1000
    status = await _change(arguments, output, {"paused_until_ms": until_ms})
    if not output.as_json:
        output.remark("ledgers under way are finished: `quire repair throttle RATE` slows them")
    return status


async def resume(arguments: argparse.Namespace, output: Output) -> int:
    """End a pause."""
    return await _change(arguments, output, {"paused_until_ms": 0})


async def settings(arguments: argparse.Namespace, output: Output) -> int:
    """Print all settings, after the given changes."""
    return await _change(arguments, output, changes_of(arguments.changes))


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


async def _change(arguments: argparse.Namespace, output: Output, values: Mapping[str, int]) -> int:
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = RepairSettingsStore(cluster.store, cluster.rng)
        found = await (store.change(**values) if values else store.get())
    output.record(asdict(found))
    return ExitCode.DONE
