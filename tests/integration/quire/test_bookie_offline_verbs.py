"""Tests of `quire bookie segments|dump|rebuild-index` on a killed bookie of a cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ledger_client import LedgerClient, Quorum
from quire.errors import ExitCode
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENTRIES = [f"entry number {number}".encode() for number in range(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start one bookie, for all of the module's tests."""
    async with LocalCluster(1) as running:
        yield running


def run(*words: object, status: int = ExitCode.DONE) -> Any:
    """Run a verb; return its JSON, or its errors if it must fail."""
    done = run_quire("bookie", *map(str, words), "-o", "json")
    assert done.returncode == status, done.stderr.decode()
    if not done.stdout:
        return json.loads(done.stderr)
    return (
        [json.loads(line) for line in done.stdout.splitlines()]
        if words[0] == "dump"
        else (json.loads(done.stdout))
    )


async def read_all(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        client.open_ledger(ledger_id) as reader,
    ):
        last = len(ENTRIES) - 1
        return [entry.data async for batch in reader.read(0, last) for entry in batch]


@pytest.mark.long
async def test_a_killed_bookie_is_inspected_and_serves_from_a_rebuilt_index(
    cluster: LocalCluster,
) -> None:
    async with LedgerClient(cluster.metadata_uri) as client:
        ledger = await client.create_ledger(Quorum.all(1))
        await ledger.append_many(ENTRIES)
        await ledger.aclose()
        deleted = await client.create_ledger(Quorum.all(1))
        await deleted.append(b"gone soon")
        await deleted.aclose()
    (bookie,) = cluster.bookies
    told = run("segments", bookie.data_dir, status=ExitCode.REFUSED)
    assert "in use" in told["message"]
    assert "SIGTERM" in told["try_next"]
    await bookie.stop()  # in order: its records are below the checkpoint's mark
    await bookie.start()
    async with LedgerClient(cluster.metadata_uri) as client:
        second = await client.create_ledger(Quorum.all(1))
        await second.append_many(ENTRIES)
        await second.aclose()
    bookie.kill()
    await bookie.stop()  # wait for its end

    rows = run("segments", bookie.data_dir)
    assert sum(row["entries"] for row in rows) == 2 * len(ENTRIES) + 1
    assert rows[0]["live_bytes"] > 0
    assert {row["damaged_bytes"] for row in rows} == {0}
    name = bookie.data_dir / rows[0]["name"]
    found = run("dump", name, "--ledger", ledger.id)
    adds = [record for record in found if record["kind"] == "adds"]
    assert (adds[0]["first_entry_id"], adds[-1]["last_entry_id"]) == (0, len(ENTRIES) - 1)
    assert len(run("dump", name, "--limit", 2)) == 2
    copy = bookie.data_dir.parent / name.name  # a copy of the file needs no lock
    copy.write_bytes(name.read_bytes())
    assert run("dump", copy, "--from", adds[0]["offset"], "--limit", 1)[0] == adds[0]

    told = run("rebuild-index", bookie.data_dir)
    assert (told["limbo_ledgers"], told["is_limbo"], told["damaged_runs"]) == (0, False, 0)
    assert told["vouches"].startswith("everything is as before")
    assert Path(told["old_index"]).name == "data.mdb.old-1"
    assert run("rebuild-index", bookie.data_dir, "--discard")["old_index"] is None
    assert run("check", bookie.data_dir)["findings"] == []
    await bookie.start()
    assert await read_all(cluster, ledger.id) == ENTRIES
    assert await read_all(cluster, second.id) == ENTRIES


async def test_a_place_that_is_no_bookie_is_a_usage_error(tmp_path: Path) -> None:
    for words in (
        ("segments", tmp_path),
        ("dump", tmp_path / "x.log"),
        ("rebuild-index", tmp_path),
    ):
        assert run(*words, status=ExitCode.USAGE)["message"]
    assert list(tmp_path.iterdir()) == []
