"""A whole bookie follows the quotas in the metadata: no restart, and the last known hold."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from bookie.wire.messages import Status
from metadata.security.quota_store import QuotaStore
from metadata.security.quotas import QuotaKey, entity_of
from quire.identity.principal import ANONYMOUS
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.bookie.wire_client import WireClient, batch_of
from tests.support.metadata.scripted_faults import ScriptedFaults

CLIENTS = entity_of([("user", ANONYMOUS.name)])
KEY = QuotaKey.APPEND_BYTE_RATE


@dataclass
class LimitedBookie:
    """A running bookie, its quotas, and a client without a principal."""

    bookie: Running
    quotas: QuotaStore
    outage: ScriptedFaults
    client: WireClient
    next_entry: int = 0

    async def throttles(self) -> int:
        """Add a batch; return how many pauses there were until now."""
        assert await self.client.add(batch_of(7, self.next_entry)) is Status.OK
        self.next_entry += 1
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.bookie.admin_url}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        name = f'quire_bookie_throttles_total{{quota="{KEY}"}} '
        return sum(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[LimitedBookie]:
    machine, outage = Machine(tmp_path), ScriptedFaults()
    machine.server.faults = outage
    await machine.format()
    bookie, store = await machine.start(), machine.store()
    client = await bookie.client(7)
    yield LimitedBookie(bookie, QuotaStore(store, machine.rng), outage, client)
    outage.is_away = False
    await client.close()
    await bookie.stop()
    await store.aclose()


async def test_a_bookie_follows_the_quotas(limited: LimitedBookie) -> None:
    assert await limited.throttles() == 0
    await limited.quotas.alter(CLIENTS, {KEY: 1.0})
    seen: list[int] = []

    async def look() -> bool:
        seen.append(await limited.throttles())
        return seen[-1] > 0

    while not await look():
        assert len(seen) < 1_000, "the bookie reads the new quota"
    limited.outage.is_away = True
    assert await limited.throttles() > seen[-1], "the last known quotas hold"
    limited.outage.is_away = False
    await limited.quotas.alter(CLIENTS, {KEY: None})
    while (now := await limited.throttles()) != seen[-1]:
        seen.append(now)
        assert len(seen) < 1_000, "the bookie reads that it is gone"


async def test_a_bookie_starts_with_the_quotas_that_are_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.format()
    store = machine.store()
    quotas = QuotaStore(store, machine.rng)
    await quotas.alter(CLIENTS, {KEY: 1.0})
    bookie = await machine.start()
    client = await bookie.client(7)
    assert await LimitedBookie(bookie, quotas, ScriptedFaults(), client).throttles() == 1
    await client.close()
    await bookie.stop()
    await store.aclose()
