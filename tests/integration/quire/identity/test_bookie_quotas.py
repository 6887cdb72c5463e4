"""Quotas at real bookies, set and removed by the command: a client keeps its rate.

The clients prove nothing, so their quota is that of the name ANONYMOUS.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.request import urlopen

import pytest

from ledger_client import ClientConfig, LedgerClient, Quorum
from quire.errors import ExitCode
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.until import WAIT_S

RATE = 1_000_000
PAYLOAD = b"x" * 1_000
SECONDS = 4
CONFIG = ClientConfig(window_bytes_max=RATE)
"""A window that the quota lets pass within `add_timeout_s`."""
APPENDED, READ = "append_byte_rate", "read_byte_rate"


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(3, bookie_options={"repair": "false"}) as running:
        yield running


async def quota(cluster: LocalCluster, *words: str) -> None:
    done = await asyncio.to_thread(run_quire, "quota", *words, metadata=cluster.metadata_uri)
    assert done.returncode == ExitCode.DONE, done.stderr


def pauses(cluster: LocalCluster, key: str) -> int:
    """Return how often the bookies paused connections."""
    count = 0
    for bookie in cluster.bookies:
        with urlopen(f"{bookie.admin_url}/metrics", timeout=WAIT_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f'quire_bookie_throttles_total{{quota="{key}"}} '):
                    count += int(float(line.split()[-1]))
    return count


async def append(client: LedgerClient) -> tuple[int, float]:
    """Append the bytes of SECONDS; return the ledger's id, and how long it took."""
    began_s = time.monotonic()
    async with client.create_ledger(Quorum(3, 3, 2)) as ledger:
        await ledger.append_many([PAYLOAD] * (SECONDS * RATE // len(PAYLOAD)))
        return ledger.id, time.monotonic() - began_s


async def read(client: LedgerClient, ledger_id: int) -> float:
    """Read all entries and check them; return how long it took."""
    began_s, count = time.monotonic(), 0
    async with client.open_ledger(ledger_id) as reader:
        async for batch in reader.read():
            assert all(entry.data == PAYLOAD for entry in batch)
            count += len(list(batch))
    assert count == SECONDS * RATE // len(PAYLOAD)
    return time.monotonic() - began_s


async def wait_until_paused(cluster: LocalCluster, client: LedgerClient) -> None:
    """Append until all bookies have read the quota."""
    async with asyncio.timeout(WAIT_S):
        while pauses(cluster, APPENDED) < len(cluster.bookies):
            await append(client)


async def wait_until_free(cluster: LocalCluster, client: LedgerClient) -> None:
    """Append until no bookie pauses it: the default holds for no client that proved nothing."""
    async with asyncio.timeout(WAIT_S):
        while True:
            before = pauses(cluster, APPENDED)
            await append(client)
            if pauses(cluster, APPENDED) == before:
                return


async def test_a_client_keeps_its_rate_until_the_quota_is_removed(cluster: LocalCluster) -> None:
    limits = (f"{APPENDED}={RATE}", f"{READ}={RATE}")
    async with LedgerClient(cluster.metadata_uri, config=CONFIG) as client:
        await quota(cluster, "set", "--default-user", *limits)
        await quota(cluster, "set", "--user", "ANONYMOUS", *limits)
        await wait_until_paused(cluster, client)
        ledger_id, took_s = await append(client)
        assert took_s > SECONDS - 1.5, "a second is free"
        await read(client, ledger_id)
        assert pauses(cluster, READ) > 0
        await quota(cluster, "remove", "--user", "ANONYMOUS", "--yes")
        await wait_until_free(cluster, client)
