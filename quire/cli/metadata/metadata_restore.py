"""`quire metadata restore|accept-restore`: a dump written to an empty address, and its acceptance.

Leaves the restore to `metadata.restore.restoring`, and the comparison with the bookies to
`metadata_compare`.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from ledger_client.cluster_access import open_cluster
from metadata.restore.dump_file import LINE_BYTES_MAX, DumpReader
from metadata.restore.restore_record import accept_restore
from metadata.restore.restoring import CheckedDump, Restorer, check_dump
from metadata.store.zookeeper.store import open_store
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode, UsageError

NEXT_STEP = (
    "Nothing is removed that this metadata does not know. Start the bookies, run `quire metadata "
    "compare`, then `quire metadata accept-restore --yes`."
)


async def restore(arguments: argparse.Namespace, output: Output) -> int:
    """Check the complete file, then write it."""
    address, name = metadata_address(arguments), arguments.file
    with _lines(name) as lines:
        dump = check_dump(name, lines)
    require_consent(arguments, f"write {dump.node_count} nodes of {name} to {address}")
    rng = Random(os.urandom(16))
    store = await open_store(address, rng=rng)
    try:
        await _write(Restorer(store, rng, dump), dump, name, output)
    finally:
        await store.aclose()
    output.record({"metadata": address, "node_count": dump.node_count, "taken_ms": dump.taken_ms})
    if not output.as_json:
        output.remark(NEXT_STEP)
    return ExitCode.DONE


async def accept(arguments: argparse.Namespace, output: Output) -> int:
    """Accept that the metadata is as it was at the dump."""
    address = metadata_address(arguments)
    require_consent(arguments, "let bookies remove what this metadata does not know")
    async with open_cluster(address) as cluster:
        record = await accept_restore(cluster.store)
    output.record({"metadata": address, "taken_ms": record.taken_ms, "accepted": True})
    return ExitCode.DONE


async def _write(restorer: Restorer, dump: CheckedDump, name: str, output: Output) -> None:
    with _lines(name) as lines, Progress(output, "restored", "nodes", dump.node_count) as progress:
        restorer.on_written = progress.advance
        await restorer.restore(DumpReader(name, lines).nodes())


@contextmanager
def _lines(name: str) -> Iterator[Iterator[bytes]]:
    """Open a file and yield its lines, each with at most one byte more than LINE_BYTES_MAX."""
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"cannot open {name}: {error.strerror}") from error
    with stream:
        yield iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b"")
