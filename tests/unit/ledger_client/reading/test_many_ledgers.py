"""Reads of ranges of many ledgers through one client, against bookies in memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import (
    EntryNotFoundError,
    LedgerClient,
    LedgerNotFoundError,
    LedgerRange,
    LedgerState,
    RangePart,
    UnauthorizedError,
)
from ledger_client.reading import many_ledgers
from tests.support.ledger_client.cluster import THREE, TestCluster


@pytest.fixture
async def client(cluster: TestCluster) -> AsyncIterator[LedgerClient]:
    made = cluster.client()
    yield made
    await made.aclose()


async def written(client: LedgerClient, count: int, *, password: bytes = b"") -> int:
    async with client.create_ledger(THREE, password=password) as ledger:
        await ledger.append_many([b"%d:%d" % (ledger.id, number) for number in range(count)])
    return ledger.id


async def parts_of(
    client: LedgerClient, ranges: list[LedgerRange], *, password: bytes = b"", chunk: int = 1_000
) -> list[RangePart]:
    found: list[RangePart] = []
    async for some in client.read_ranges(ranges, password=password, chunk_bytes=chunk):
        assert some, "a list is never empty"
        found += some
    return found


def texts(parts: list[RangePart], index: int) -> list[bytes]:
    batches = [part.batch for part in parts if part.index == index and part.batch is not None]
    return [entry.data for batch in batches for entry in batch]


async def test_ranges_come_in_order_with_their_ledgers(client: LedgerClient) -> None:
    ids = [await written(client, 5) for _ in range(150)]
    parts = await parts_of(client, [LedgerRange(each, 1, 3) for each in ids])
    assert [part.index for part in parts] == sorted(part.index for part in parts)
    for index, ledger_id in enumerate(ids):
        assert texts(parts, index) == [b"%d:%d" % (ledger_id, number) for number in (1, 2, 3)]
    assert {part.info.id for part in parts if part.info is not None} == set(ids)


async def test_many_small_ledgers_are_open_at_once_and_a_large_one_alone(
    cluster: TestCluster, client: LedgerClient
) -> None:
    ids = [await written(client, 1) for _ in range(200)]
    small = [LedgerRange(each, 0, 0, 10.0) for each in ids]
    unknown = [LedgerRange(each, 0, 0) for each in ids]
    for wanted, most in ((small, many_ledgers.LEDGERS_AHEAD_MAX), (unknown, 2)):
        ranges = client.read_ranges(wanted, chunk_bytes=1)
        before = client.stats().ledgers_opened
        await anext(ranges)
        await asyncio.sleep(0.2)
        opened = client.stats().ledgers_opened - before
        await ranges.aclose()
        assert most <= opened <= most + 2, "ahead, and not all of them"


async def test_a_failed_range_ends_with_its_failure_and_the_next_ones_follow(
    client: LedgerClient,
) -> None:
    first, short, gone, last = [await written(client, 3) for _ in range(4)]
    await client.delete_ledger(gone)
    ranges = [LedgerRange(each, 0, 2) for each in (first, gone, last)]
    parts = await parts_of(client, [*ranges, LedgerRange(short, 1, 7)])
    assert [texts(parts, index) for index in (0, 2)] == [
        [b"%d:%d" % (each, number) for number in range(3)] for each in (first, last)
    ]
    missing, beyond = (part for part in parts if part.failure is not None)
    assert (missing.index, missing.info) == (1, None)
    assert isinstance(missing.failure, LedgerNotFoundError)
    assert (beyond.index, beyond.last_confirmed) == (3, 2)
    assert isinstance(beyond.failure, EntryNotFoundError)


async def test_an_open_ledger_is_read_to_its_lac(client: LedgerClient) -> None:
    ledger = await client.create_ledger(THREE)
    await ledger.append_many([b"a", b"b"])
    parts = await parts_of(client, [LedgerRange(ledger.id, 0, 1)])
    assert texts(parts, 0) == [b"a", b"b"]
    assert parts[0].info is not None
    assert parts[0].info.state is LedgerState.OPEN
    await ledger.aclose()


async def test_a_wrong_password_is_refused(client: LedgerClient) -> None:
    ledger_id = await written(client, 2, password=b"the right password")
    parts = await parts_of(client, [LedgerRange(ledger_id, 0, 1)], password=b"wrong")
    assert [type(part.failure) for part in parts] == [UnauthorizedError]
    assert texts(
        await parts_of(client, [LedgerRange(ledger_id, 0, 1)], password=b"the right password"), 0
    )


async def test_a_large_range_pauses_until_its_entries_are_taken(
    client: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_ledgers, "BUFFER_BYTES_MAX", 2_000)
    async with client.create_ledger(THREE) as ledger:
        for _ in range(50):
            await ledger.append(bytes(1_000))
    ranges = client.read_ranges([LedgerRange(ledger.id, 0, 49)], chunk_bytes=1)
    sizes = []
    async for some in ranges:
        sizes.append(sum(part.batch.payload_bytes for part in some if part.batch is not None))
        await asyncio.sleep(0.01)
    assert sum(sizes) == 50_000
    assert max(sizes) <= 3_000


async def test_nothing_runs_after_the_iterator_is_closed(client: LedgerClient) -> None:
    ids = [await written(client, 1) for _ in range(20)]
    before = len(asyncio.all_tasks())
    ranges = client.read_ranges([LedgerRange(each, 0, 0) for each in ids], chunk_bytes=1)
    await anext(ranges)
    await ranges.aclose()
    assert len(asyncio.all_tasks()) <= before
