"""A bookie starts on its own directories and on no others (protocol rules 2.1 and 2.2)."""

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger_client import LedgerClient, Quorum
from quire.local_bookie import LocalBookie
from quire.local_cluster import LocalCluster

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
REFUSAL_S = 20.0


async def test_a_wiped_bookie_is_refused_and_comes_back_as_another(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    before = bookie.id
    async with LedgerClient(cluster.metadata_uri) as client:
        async with client.create_ledger(Quorum.all(5)) as ledger:
            await ledger.append_many([b"kept"] * 100)
        await bookie.stop()
        for path in bookie.data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        said = await refusal(cluster, bookie)
        assert "empty" in said
        assert "never format in place of what was not mounted" in said
        await bookie.start()  # a local cluster formats what is empty
        assert bookie.id != before
        async with client.open_ledger(ledger.id) as reader:
            read = [entry.data async for batch in reader.read() for entry in batch]
            assert read == [b"kept"] * 100
            assert before in reader.info.fragments[0].ensemble


@pytest.mark.parametrize("name", ["identity", "log", "index"])
async def test_a_wiped_directory_is_refused(cluster: LocalCluster, name: str) -> None:
    bookie = cluster.bookies[1]
    async with put_aside(bookie, name) as aside:
        (bookie.data_dir / name).mkdir()
        said = await refusal(cluster, bookie)
        assert name in said
        assert "cookie" in said
        shutil.rmtree(bookie.data_dir / name)
        aside.rename(bookie.data_dir / name)


@pytest.mark.parametrize("name", ["identity", "log", "index"])
async def test_swapped_directories_are_refused(cluster: LocalCluster, name: str) -> None:
    one, other = cluster.bookies[1:3]
    async with put_aside(one, name) as of_one, put_aside(other, name) as of_other:
        of_one.rename(other.data_dir / name)
        of_other.rename(one.data_dir / name)
        for bookie, stranger in ((one, other), (other, one)):
            said = await refusal(cluster, bookie)
            assert stranger.id in said, "the message names whose directory it is"
            assert bookie.id in said
        (one.data_dir / name).rename(of_other)
        (other.data_dir / name).rename(of_one)
        of_one.rename(one.data_dir / name)
        of_other.rename(other.data_dir / name)


async def test_two_processes_on_one_directory(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[3]
    said = await refusal(cluster, bookie)
    assert "lock" in said or "in use" in said
    assert str(bookie.data_dir) in said
    assert bookie.is_running
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        client.create_ledger(Quorum.all(5)) as ledger,
    ):
        assert await ledger.append(b"the first one goes on serving") == 0


@asynccontextmanager
async def put_aside(bookie: LocalBookie, name: str) -> AsyncIterator[Path]:
    """Stop a bookie and rename one of its directories; start it at the end, when it is put back."""
    await bookie.stop()
    aside = bookie.data_dir.parent / f"{bookie.name}-{name}"
    (bookie.data_dir / name).rename(aside)
    yield aside
    await bookie.start()


async def refusal(cluster: LocalCluster, bookie: LocalBookie) -> str:
    """Run a bookie that must not start, on its directories as they are; return what it says."""
    options = {
        "data-dir": bookie.data_dir,
        "metadata": cluster.metadata_uri,
        "reserve-bytes-min": 1,
        "disk-high-mark": 1.0,
        "disk-low-mark": 1.0,
    }
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quire.cli.main", "bookie", "run", *words),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), REFUSAL_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode != 0
    assert output == b"", "nothing says that it serves"
    return errors.decode()
