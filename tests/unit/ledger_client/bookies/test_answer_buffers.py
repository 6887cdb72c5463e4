"""Large answers are received into buffers that are reused once nothing refers to them."""

from collections.abc import AsyncIterator

import pytest

from bookie.wire.frames import POOLED_BYTES_MIN
from ledger_client import LedgerReader, Quorum
from ledger_client.bookies.pool import BODIES_BYTES_MAX
from tests.support.ledger_client.cluster import TestCluster

ENTRY = b"x" * POOLED_BYTES_MIN
COUNT = 6


@pytest.fixture
async def reader() -> AsyncIterator[LedgerReader]:
    cluster = TestCluster()
    await cluster.add_bookie()
    client = cluster.client()
    async with client.create_ledger(Quorum(1, 1, 1)) as ledger:
        for number in range(COUNT):
            await ledger.append(b"%d" % number + ENTRY)
    async with client.open_ledger(ledger.id) as opened:
        yield opened
    await client.aclose()
    await cluster.aclose()


async def read_one(reader: LedgerReader, entry_id: int) -> memoryview:
    async for batch in reader.read(entry_id, entry_id):
        return batch.buffers()[0]
    raise AssertionError("the entry is there")


async def test_an_unused_buffer_is_reused(reader: LedgerReader) -> None:
    buffers = []
    for number in range(COUNT):
        payload = await read_one(reader, number)
        assert payload[:1] == b"%d" % number
        buffers.append(payload.obj)
        del payload
    assert len({id(buffer) for buffer in buffers}) < COUNT


async def test_a_buffer_in_use_is_not_overwritten(reader: LedgerReader) -> None:
    payloads = [await read_one(reader, number) for number in range(COUNT)]
    for number, payload in enumerate(payloads):
        assert bytes(payload) == b"%d" % number + ENTRY


def test_the_buffers_that_are_kept_hold_several_of_the_largest_reads() -> None:
    assert BODIES_BYTES_MAX >= 4 * 4 * 1024 * 1024
