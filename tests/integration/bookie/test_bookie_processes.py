"""Tests of real bookie processes with a real ZooKeeper: kills, stops, wrong starts, orphans."""

import asyncio
import json
import random
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookie.wire.messages import LacReply, ReadEntries, ReadLac, Status
from metadata.ids import EntryId, LedgerId
from metadata.paths import BOOKIES
from metadata.registry.cluster import create_cluster
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from tests.support.bookie.wire_client import WireClient, batch_of, payloads_of
from tests.support.pausing import paused

FORMAT = "from bookie.main import format_bookie; print(format_bookie(options))"
RUN = "import sys; from bookie.main import run_bookie; sys.exit(run_bookie(options))"
ONE = LedgerId(1)


@dataclass
class Site:
    """A metadata service and a directory for bookies."""

    root: Path
    uri: str

    async def run(self, name: str, code: str, *switches: str, **options: object) -> Process:
        flags = {
            "data_dir": str(self.root / name),
            "metadata": self.uri,
            "reserve_bytes_min": 1,
            "segment_bytes_max": 2**20,
            "disk_high_mark": 1.0,  # the machine's disk may be nearly full
            "session_timeout_s": 4.0,
            "die_with_parent": True,
            **options,
        }
        load = "from bookie.options import BOOKIE"
        program = f"{load}; options = BOOKIE.load(None, {{}}, {flags!r}); {code}"
        return await asyncio.create_subprocess_exec(
            sys.executable, *switches, "-c", program, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )

    async def format(self, name: str = "a") -> str:
        process = await self.run(name, FORMAT)
        out, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        return out.decode().strip()

    async def start(self, name: str = "a") -> "Bookie":
        process = await self.run(name, RUN)
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            _, error = await process.communicate()
            raise AssertionError(error.decode())
        return Bookie(process, json.loads(line))

    async def refused(self, name: str = "a", code: str = RUN, *switches: str) -> str:
        """Run a command that must not start a bookie; return its output."""
        process = await self.run(name, code, *switches)
        out, error = await process.communicate()
        assert process.returncode not in (0, None)
        assert out == b"", "standard output is for bookies that serve"
        return error.decode()


@dataclass
class Bookie:
    """One running process and its output."""

    process: Process
    ready: dict[str, str]

    async def client(self, *ledgers: int) -> WireClient:
        host, _, port = self.ready["address"].rpartition(":")
        return await WireClient.greeted((host, int(port)), self.ready["id"], ledgers)

    async def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        out, _ = await self.process.communicate()
        assert out == b"", "one line on standard output, and no more"
        assert self.process.returncode is not None
        return self.process.returncode


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", tick_ms=200)
    await server.start()
    await create_cluster(server.uri + "/quire", random.Random(1))
    yield Site(tmp_path / "bookies", server.uri + "/quire")
    await server.stop()


@pytest.mark.long
async def test_kill_keeps_acked_adds_and_fences(site: Site) -> None:
    bookie_id = await site.format()
    bookie = await site.start()
    assert bookie.ready["id"] == bookie_id
    assert set(bookie.ready) == {"id", "address", "admin", "pid", "data_dir"}
    acked: dict[int, bytes] = {}
    for life in range(3):
        client = await bookie.client(1, 2, 3)
        first = len(acked)
        payloads = [b"life %d entry %d" % (life, i) for i in range(200)]
        ids = [client.send_add(batch_of(1, first + i, [each])) for i, each in enumerate(payloads)]
        for i, each in enumerate(ids[:150]):
            assert await client.ack(each) is Status.OK
            acked[first + i] = payloads[i]
        if life == 1:
            await client.request(ReadLac(LedgerId(2), fence=True))
        bookie.process.kill()
        await bookie.process.communicate()
        client.abort()
        bookie = await site.start()
        client = await bookie.client(1, 2)
        wanted = ReadEntries(ONE, EntryId(0), EntryId(10_000), 2**22, fence=False)
        found = payloads_of(await client.request_entries(wanted))
        assert {i: found[i] for i in acked} == acked
        acked = found  # unacknowledged entries may be there too, and then stay
        fenced = await client.add(batch_of(2, life))
        assert fenced is (Status.FENCED if life >= 1 else Status.OK)
        await client.close()
    assert await bookie.end(signal.SIGTERM) == 0


@pytest.mark.long
async def test_terminate_answers_pending_requests(site: Site) -> None:
    await site.format()
    bookie = await site.start()
    client = await bookie.client(1)
    ids = [client.send_add(batch_of(1, first)) for first in range(300)]
    await client.ack(ids[0])
    ending = asyncio.create_task(bookie.end(signal.SIGTERM))
    stored = []
    try:
        for first, each in enumerate(ids[1:], 1):
            status = await client.ack(each)
            assert status in (Status.OK, Status.CLOSING)
            if status is Status.OK:
                stored.append(first)
    except (EOFError, ConnectionError):
        pass  # it may close before it reads all requests
    assert await ending == 0
    client.abort()
    bookie = await site.start()
    client = await bookie.client(1)
    wanted = ReadEntries(ONE, EntryId(0), EntryId(10_000), 2**22, fence=False)
    found = payloads_of(await client.request_entries(wanted))
    assert [first for first in stored if first not in found] == []
    await client.close()
    assert await bookie.end(signal.SIGINT) == 0


async def test_a_bookie_dies_with_its_parent(site: Site) -> None:
    await site.format()
    bookie = await site.start()
    assert bookie.process.stdin is not None
    bookie.process.stdin.close()
    await bookie.process.communicate()
    assert bookie.process.returncode == 0


@pytest.mark.long
async def test_a_bookie_that_cannot_start_reports_the_reason(site: Site) -> None:
    await site.format("a")
    await site.format("b")
    assert "quire bookie format" in await site.refused("never-formatted")
    assert "has a cookie already" in await site.refused("a", FORMAT)
    assert "python -O" in await site.refused("a", RUN, "-O")
    bookie = await site.start("a")
    assert "in use by another process" in await site.refused("a")
    await bookie.end(signal.SIGTERM)
    (site.root / "a/index").rename(site.root / "aside")
    shutil.copytree(site.root / "b/index", site.root / "a/index")
    said = await site.refused("a")
    assert "directory index does not belong to this bookie" in said
    assert bookie.ready["id"] in said


async def test_a_fence_survives_a_checkpoint_a_stop_and_a_kill(site: Site) -> None:
    await site.format()
    bookie = await site.start()
    client = await bookie.client(1)
    await client.request(ReadLac(ONE, fence=True))
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        await client.close()
        await bookie.end(number)
        bookie = await site.start()
        client = await bookie.client(1)
        lac = await client.request(ReadLac(ONE, fence=False))
        assert isinstance(lac, LacReply)
        assert lac.fenced
        assert await client.add(batch_of(1, 0)) is Status.FENCED
    await client.close()
    await bookie.end(signal.SIGTERM)


@pytest.mark.long
async def test_a_paused_bookie_loses_no_entry_and_registers_again(site: Site) -> None:
    await site.format()
    bookie = await site.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    with paused(bookie.process.pid):
        pending = client.send_add(batch_of(1, 1))
        await asyncio.sleep(6)  # longer than its session
    assert await client.ack(pending) is Status.OK
    store = await open_store(site.uri, rng=random.Random(1))
    await wait_for_registration(store, bookie.ready["id"])
    await store.aclose()
    await client.close()
    assert await bookie.end(signal.SIGTERM) == 0


async def wait_for_registration(store: MetadataStore, bookie_id: str) -> None:
    """Wait until it is registered, and stays so for longer than a session lasts."""
    seen = 0
    while seen < 50:
        seen = seen + 1 if bookie_id in await store.children(BOOKIES, fresh=True) else 0
        await asyncio.sleep(0.1)
