"""A ledger's page in a console process, over real bookies that are paused and killed."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from ledger_client import ClientConfig, LedgerClient, Quorum
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import TIMEOUT_S, pause_repair, start_quire

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSED_ENTRIES = 5
DEGRADED = ClientConfig(run_degraded=True)
"""No bookie is left to replace the one that is paused."""


@contextmanager
def running_console(metadata: str) -> Iterator[str]:
    """Start `quire console`; yield its address."""
    process = start_quire("console", "--port", "0", metadata=metadata)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        try:
            process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bookies=3) as running:
        yield running


async def page(http: ClientSession, path: str) -> str:
    async with http.get(path) as answer:
        assert answer.status == 200
        return await answer.text()


async def page_with(http: ClientSession, path: str, wanted: str) -> str:
    """Load a page until it has a text: a bookie counts as up until its session ends."""
    while wanted not in (text := await page(http, path)):  # noqa: ASYNC110 - each try is a request
        await asyncio.sleep(0.1)
    return text


async def tail_until(http: ClientSession, path: str, wanted: bytes) -> bytes:
    """Read a stream of events until it has a text; return what it sent."""
    read = b""
    async with http.get(path) as answer:
        async for chunk in answer.content.iter_any():
            read += chunk
            if wanted in read:
                break
    return read


async def test_copies_that_a_bookie_missed(cluster: LocalCluster) -> None:
    """A bookie is paused while entries are acknowledged by the two others, then loses power."""
    uri = cluster.metadata_uri
    pause_repair(uri)
    with running_console(uri) as address:
        async with ClientSession(address) as http, LedgerClient(uri, config=DEGRADED) as client:
            async with client.create_ledger(Quorum(3, 3, 2)) as ledger:
                await ledger.append(b"<b>first</b>")
                assert 'class="state open"' in await page(http, f"/ledgers/{ledger.id}")
                paused = cluster.bookies[0]
                paused.pause()
                for number in range(PAUSED_ENTRIES):
                    await ledger.append(b"%d" % number)
                text = await page(http, f"/ledgers/{ledger.id}?from=0")
                assert f"{paused.id}: " in text
                assert "&lt;b&gt;first&lt;/b&gt;" in text
                sent = await tail_until(http, f"/ledgers/{ledger.id}/tail", b'"text": "4"')
                assert b"&lt;" not in sent
                paused.kill()
            text = await page_with(http, f"/ledgers/{ledger.id}", "<td>bookie down")
            assert f"{PAUSED_ENTRIES + 1} entries) has 2 of 3 copies on the bookies" in text
            await paused.restart()
            missing = f"<td>missing {PAUSED_ENTRIES} of {PAUSED_ENTRIES + 1}</td>"
            path = f"/ledgers/{ledger.id}?fragment=0&from=0&as=hex"
            text = await page_with(http, path, missing)
            assert f"1 entry range ({PAUSED_ENTRIES} entries) has 2 of 3 copies." in text
            assert "<td>missing</td>" in text
            assert "3c 62 3e 66" in text


async def test_a_ledger_with_a_password(cluster: LocalCluster) -> None:
    with running_console(cluster.metadata_uri) as address:
        async with ClientSession(address) as http, LedgerClient(cluster.metadata_uri) as client:
            async with client.create_ledger(
                Quorum(3, 3, 2), password=b"a secret password"
            ) as ledger:
                await ledger.append(b"classified")
                text = await page(http, f"/ledgers/{ledger.id}?from=0")
                assert "without the ledger's password" in text
                sent = await tail_until(http, f"/ledgers/{ledger.id}/tail", b"event: end")
                assert b"refuse" in sent
            text = await page(http, f"/ledgers/{ledger.id}?from=0")
            assert "refused the password" in text
            assert "classified" not in text


async def test_the_latency_of_appends_is_known_since_the_console_started(
    cluster: LocalCluster,
) -> None:
    with running_console(cluster.metadata_uri) as address:
        async with ClientSession(address) as http, LedgerClient(cluster.metadata_uri) as client:
            async with client.create_ledger(Quorum(3, 3, 2)) as ledger:
                path = f"/ledgers/{ledger.id}"
                assert "Not known yet" in await page(http, path)
                while " ms</td>" not in (text := await page(http, path)):
                    await ledger.append(b"x")  # a bookie reports the last ten seconds only
            assert "Known since" in text
            assert 'class="map latency"' in text
            assert all(f">{bookie.id}</text>" in text for bookie in cluster.bookies)
