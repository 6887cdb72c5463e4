"""Rates over a minute of virtual time: clients over their quota get it, and others lose nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.wire.codec import Entries
from bookie.wire.messages import ReadEntries, Status
from metadata.ids import EntryId, LedgerId
from metadata.security.quotas import QuotaKey
from tests.simulation.loop import simulation_loop
from tests.support.bookie.quota_world import (
    APPENDED,
    BATCH_BYTES,
    READ,
    QuotaClient,
    QuotaWorld,
    entry,
    run,
)

MINUTE_S = 60.0
PER_S = 1_000_000.0
STEP_S = 0.05
QUICK_S = 0.01
"""Time of a request that no quota delays, with the steps in which the test looks."""
FILLED = LedgerId(1)

Request = Callable[[QuotaClient, int], Awaitable[int]]
"""Makes a request of a number; returns its bytes."""


async def append(client: QuotaClient, number: int) -> int:
    ledger_id = client.connection._attachments._attached.keys()
    batch = entry(next(iter(ledger_id)), number)
    assert await client.add(batch) is Status.OK
    return len(batch)


async def read(client: QuotaClient, number: int) -> int:
    first = EntryId(number % 20)
    answer = await client.ask(
        ReadEntries(FILLED, first, EntryId(29), 10 * BATCH_BYTES, fence=False)
    )
    assert isinstance(answer, Entries)
    return sum(len(batch.data) for batch in answer.batches)


async def send_for_a_minute(client: QuotaClient, request: Request) -> int:
    """Send one request after the other; return their bytes."""
    total, number = 0, 0
    while simulation_loop().time() < MINUTE_S:
        total += await request(client, number)
        number += 1
    return total


async def longest_wait_s(client: QuotaClient, request: Request) -> float:
    """Send requests for a minute, with pauses; return how long the slowest took."""
    longest_s, number, now = 0.0, 0, simulation_loop().time
    while now() < MINUTE_S:
        began_s = now()
        await request(client, number)
        longest_s = max(longest_s, now() - began_s)
        number += 1
        await asyncio.sleep(STEP_S)
    return longest_s


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("key", [APPENDED, READ])
def test_a_client_over_its_quota_gets_its_rate_and_others_are_not_slowed(
    key: QuotaKey, connections: int
) -> None:
    request = append if key is APPENDED else read

    async def scenario(world: QuotaWorld) -> None:
        await world.fill(FILLED, 30)
        world.storage.caches_reads = True
        world.limit("CN=alice", key, PER_S)
        world.limit("CN=carol", key, 100 * PER_S)
        ledgers = range(FILLED, FILLED + 1) if key is READ else range(10, 20)
        ids = iter([*ledgers] * 10)
        greedy = [await world.client("alice", next(ids)) for _ in range(connections)]
        others = [await world.client(name, next(ids)) for name in ("bob", "carol")]
        *totals, bob_s, carol_s = await asyncio.gather(
            *[send_for_a_minute(client, request) for client in greedy],
            *[longest_wait_s(other, request) for other in others],
        )
        assert sum(totals) == pytest.approx(PER_S * (MINUTE_S + 1), rel=0.03), "one second is free"
        assert max(bob_s, carol_s) <= QUICK_S
        assert world.counters.throttles_by_quota.keys() == {key}

    run(scenario)
