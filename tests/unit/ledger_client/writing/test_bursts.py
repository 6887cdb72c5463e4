"""Bursts of several writers that together exceed what one bookie may have unanswered (rule 4.6)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import Quorum
from tests.support.ledger_client.cluster import TestCluster

ENTRY_BYTES = 60_000


@pytest.fixture
async def three_bookies() -> AsyncIterator[TestCluster]:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    yield cluster
    await cluster.aclose()


@pytest.mark.parametrize("ack", [2, 3])
async def test_writers_wait_for_each_other_without_a_spare(
    three_bookies: TestCluster, ack: int
) -> None:
    client = three_bookies.client(
        entry_bytes_max=65_536,
        batch_bytes_max=65_536,
        window_bytes_max=1_048_576,
        window_entries_max=1_000,
        unanswered_bytes_max=1_600_000,
        append_deadline_s=20.0,
    )
    writers = [await client.create_ledger(Quorum(3, 3, ack)) for _ in range(4)]
    entries = [bytes(ENTRY_BYTES)] * 40
    async with asyncio.timeout(20):
        found = await asyncio.gather(
            *[ledger_writer.append_many(entries) for ledger_writer in writers]
        )
    assert found == [range(40)] * 4
    for writer in writers:
        await writer.aclose()
        assert len(writer.info.fragments) == 1
