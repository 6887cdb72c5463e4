"""Tests of several bookies on one machine: one file, restarts, and hosts of write sets."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledger_client import LedgerClient, Quorum
from ledger_client.cluster_access import open_cluster
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.registry.cluster import create_cluster
from metadata.registry.location import Place
from metadata.store.embedded import EmbeddedZooKeeper
from tests.integration.quire.command import QUIRE, environment, run_quire

pytestmark = pytest.mark.long

GUIDE = Path(__file__).parents[3] / "docs" / "operating.md"
LEDGERS = 50
SMALL = "reserve_bytes_min = 1\nreserve_share = 0.0\ndisk_high_mark = 1.0\ndisk_low_mark = 1.0\n"
"""The machine's disk may be nearly full."""


@pytest.fixture
async def metadata(tmp_path: Path) -> AsyncIterator[str]:
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", tick_ms=200)
    await server.start()
    await create_cluster(server.uri + "/quire", Random(1))
    yield server.uri + "/quire"
    await server.stop()


@asynccontextmanager
async def running(file: Path, *more: str) -> AsyncIterator[Process]:
    """Run the bookies of a file; kill the supervisor at the end, if it still runs."""
    words = ("bookie", "run", "--config", str(file), *more)
    process = await asyncio.create_subprocess_exec(
        *QUIRE, *words, stdout=PIPE, stderr=sys.stderr, env=environment(None)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def served(process: Process) -> dict[str, Any]:
    """Return the output of the next bookie that serves."""
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(await process.stdout.readline())
    return told


async def ended(pid: int) -> None:
    """Return when a process has ended; the test's timeout ends the wait."""
    while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_the_guides_example_runs_and_restarts_two_bookies(
    tmp_path: Path, metadata: str
) -> None:
    (example,) = re.findall(r"```toml\n(\[bookie_defaults\].*?)```", GUIDE.read_text(), re.DOTALL)
    here = (
        (r'metadata = ".*"', f'metadata = "{metadata}"'),
        (r'advertised_host = ".*"', f'advertised_host = "127.0.0.1"\n{SMALL}'),
        (r"port = \d+", "port = 0"),
        ("/srv/", f"{tmp_path}/"),
    )
    for pattern, text in here:
        assert re.search(pattern, example)
        example = re.sub(pattern, text, example)
    file = tmp_path / "bookies.toml"
    file.write_text(example)
    for words in (("config", "check", str(file)), ("bookie", "format", "--config", str(file))):
        done = await asyncio.to_thread(run_quire, *words)
        assert done.returncode == 0, done.stderr.decode()
    async with running(file) as group:
        first, second = await served(group), await served(group)
        assert {Path(each["data_dir"]).parent.name for each in (first, second)} == {
            "disk1",
            "disk2",
        }
        async with open_cluster(metadata) as cluster:
            up = cluster.directory.bookies
            assert set(up) == {first["id"], second["id"]}
            (place,) = {
                registration.place for registration in up.values()
            }  # of one machine, that is one host
        assert place.rack == "/eu/rack-3"
        os.kill(first["pid"], signal.SIGKILL)
        again = await served(group)
        assert (again["id"], again["data_dir"]) == (first["id"], first["data_dir"])
        assert again["pid"] != first["pid"]
        group.send_signal(signal.SIGTERM)
        assert await group.wait() == 0
        for told in (again, second):
            assert not Path(f"/proc/{told['pid']}").exists()


async def test_the_bookies_end_with_their_supervisor(tmp_path: Path, metadata: str) -> None:
    text = f'[[bookie]]\ndata_dir = "{tmp_path}/one"\nmetadata = "{metadata}"\n{SMALL}'
    file = tmp_path / "bookies.toml"
    file.write_text(text)
    async with running(file, "--format-if-empty", "disk") as group:
        told = await served(group)
        group.kill()
        await group.wait()
        await ended(told["pid"])


def shared_hosts(ledger: LedgerMetadata, places: dict[BookieId, Place]) -> list[Sequence[BookieId]]:
    """Return the write sets of a ledger that have two bookies of one host."""
    found: list[Sequence[BookieId]] = []
    for fragment in ledger.fragments:
        size = len(fragment.ensemble)
        for start in range(size):
            members = [
                fragment.ensemble[(start + i) % size] for i in range(ledger.quorum.write_quorum)
            ]
            if len({places[member] for member in members}) < len(members):
                found.append(members)
    return found


async def test_no_write_set_shares_a_host_even_after_a_replacement(
    tmp_path: Path, metadata: str
) -> None:
    tables = [
        f'[[bookie]]\ndata_dir = "{tmp_path}/{host}{disk}"\nlocation = "/eu/r1/{host}"\n'
        for host in "abc"
        for disk in "12"
    ]
    text = f'[bookie_defaults]\nmetadata = "{metadata}"\n{SMALL}{"".join(tables)}'
    file = tmp_path / "bookies.toml"
    file.write_text(text)
    async with running(file, "--format-if-empty", "disk") as group:
        told = [await served(group) for _ in tables]
        pids = {BookieId(each["id"]): each["pid"] for each in told}
        async with open_cluster(metadata) as cluster, LedgerClient(metadata) as client:
            places = {bookie: known.place for bookie, known in cluster.directory.bookies.items()}
            assert set(places) == set(pids)
            ids = []
            for number in range(LEDGERS):
                async with client.create_ledger(Quorum.all(3)) as ledger:
                    await ledger.append(b"before")
                    if number == LEDGERS // 2:
                        stored, _ = await cluster.ledgers.get(ledger.id, fresh=True)
                        os.kill(pids[stored.last_fragment.ensemble[0]], signal.SIGKILL)
                    await ledger.append(b"after")
                ids.append(ledger.id)
            ledgers = [(await cluster.ledgers.get(ledger_id, fresh=True))[0] for ledger_id in ids]
        assert (
            max(len(ledger_metadata.fragments) for ledger_metadata in ledgers) > 1
        )  # the one that was killed
        assert [
            found for ledger_metadata in ledgers for found in shared_hosts(ledger_metadata, places)
        ] == []
