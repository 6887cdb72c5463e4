"""Single replicas: one entry with its verdict, and the comparison of two replicas."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from bookie.wire.batch import BatchView, build_batch
from bookie.wire.messages import Status
from ledger_client import LedgerClient, LedgerInfo
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.client_services import DirectoryAddresses
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.reading.replica_reading import (
    ComparedRange,
    DigestVerdict,
    RangeVerdict,
    ReadOutcome,
    ReplicaPiece,
    ReplicaReading,
    compare_replicas,
    read_stored_entry,
)
from ledger_client.reading.verification import verify_replicas
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.entry_ranges import Range, merged
from metadata.ledgers.ledger_metadata import Fragment
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.directory import BookieDirectory
from metadata.store.memory import MemoryMetadataStore
from quire.server.overriding import override
from tests.support.ledger_client.cluster import THREE, TestCluster

SIZE = 40
PASSWORD = b"a longer password"


class FakeReading(ReplicaReading):
    """Entry id -> digest; None where the entry is damaged, -1 where it went after it was listed."""

    def __init__(self, entries: dict[int, int | None], rng: Random) -> None:
        self.entries = entries
        self._rng = rng

    @override
    async def stored_ranges(self) -> AsyncGenerator[Range, None]:
        for each in merged((entry_id, entry_id) for entry_id in self.entries):
            yield each

    @override
    async def read(self, first: int, last: int) -> AsyncGenerator[ReplicaPiece, None]:
        while first <= last:
            end = min(last, first + self._rng.randrange(4))
            digests = [self.entries[number] for number in range(first, end + 1)]
            read = [digest for digest in digests if digest is not None and digest >= 0]
            if len(read) == len(digests):
                yield ReplicaPiece(first, end, ReadOutcome.READ, tuple(read))
                first = end + 1
                continue
            gone = digests[0] == -1
            if digests[0] is None or gone:
                yield ReplicaPiece(
                    first, first, ReadOutcome.MISSING if gone else ReadOutcome.BAD, ()
                )
                first += 1


def expected_verdict(a: int | None, b: int | None, *, in_a: bool, in_b: bool) -> RangeVerdict:
    a_gone, b_gone = not in_a or a == -1, not in_b or b == -1
    if in_a and not in_b:
        return RangeVerdict.ONLY_A
    if in_b and not in_a:
        return RangeVerdict.ONLY_B
    if not (a is None or b is None or a_gone or b_gone):
        return RangeVerdict.EQUAL if a == b else RangeVerdict.DIFFERENT
    if b_gone and not a_gone and a is not None:
        return RangeVerdict.ONLY_A
    if a_gone and not b_gone and b is not None:
        return RangeVerdict.ONLY_B
    if a is None and b is not None and not b_gone:
        return RangeVerdict.UNREADABLE_A
    if b is None and a is not None and not a_gone:
        return RangeVerdict.UNREADABLE_B
    return RangeVerdict.UNREADABLE


@pytest.mark.parametrize("seed", range(60))
async def test_every_entry_of_two_replicas_gets_its_verdict(seed: int) -> None:
    rng = Random(seed)
    both = [
        {
            number: rng.choice((1, 1, 1, 2, None, -1))
            for number in range(SIZE)
            if rng.random() < rng.choice((0.2, 0.9))
        }
        for _ in range(2)
    ]
    readings = [FakeReading(entries, rng) for entries in both]
    found = [replica async for replica in compare_replicas(*readings)]
    a, b = both
    expected = {
        each: expected_verdict(a.get(each), b.get(each), in_a=each in a, in_b=each in b)
        for each in sorted({**a, **b})
    }
    assert {
        entry_id: part.verdict for part in found for entry_id in range(part.first, part.last + 1)
    } == expected
    assert [part.first for part in found] == sorted(part.first for part in found)
    for before, after in itertools.pairwise(found):
        assert before.last < after.first
        assert before.verdict is not after.verdict or before.last + 1 < after.first


@asynccontextmanager
async def direct(
    cluster: TestCluster, ledger_id: int, password: bytes = b""
) -> AsyncIterator[tuple[BookiePool, LedgerKeys]]:
    """Open a pool that presents a ledger's key, and the keys."""
    store, rng = MemoryMetadataStore(cluster.server), Random(7)
    directory = BookieDirectory(store, rng)
    await directory.start()
    metadata, _ = await LedgerStore(store, rng, lambda: 0).get(LedgerId(ledger_id))
    keys = LedgerKeys.of(metadata, password)
    pool = BookiePool(DirectoryAddresses(directory, store), config=ClientConfig(), rng=rng)
    pool.attach(keys.ledger_id, keys.master_key)
    try:
        yield pool, keys
    finally:
        await pool.aclose()
        await directory.aclose()
        await store.aclose()


async def write(client: LedgerClient, password: bytes = b"") -> LedgerInfo:
    """Write a closed ledger of two batches, entries 0..4 and 5..9; a password adds a MAC."""
    ledger = await client.create_ledger(
        THREE, digest="hmac-sha256" if password else "crc32c", password=password
    )
    for _ in range(2):
        await asyncio.gather(*[ledger.append_nowait(b"entry") for _ in range(5)])
    await ledger.aclose()
    return ledger.info


@pytest.mark.parametrize("password", [b"", PASSWORD])
async def test_one_entry_is_read_with_its_batch_and_a_valid_digest(
    cluster: TestCluster, password: bytes
) -> None:
    info = await write(cluster.client(), password)
    bookie = info.fragments[0].ensemble[0]
    async with direct(cluster, info.id, password) as (pool, keys):
        for entry_id in range(10):
            stored = await read_stored_entry(
                pool, BookieId(bookie), keys, EntryId(entry_id), has_password=bool(password)
            )
            first = entry_id // 5 * 5
            assert (stored.payload, stored.verdict) == (b"entry", DigestVerdict.VALID)
            assert (stored.batch_first, stored.batch_last) == (first, first + 4)
            assert stored.batch_lac == first - 1


async def test_a_damaged_copy_of_an_entry_is_invalid_and_says_why(cluster: TestCluster) -> None:
    info = await write(cluster.client())
    bookie = info.fragments[0].ensemble[1]
    cluster.bookie(bookie).damage(LedgerId(info.id), 9)
    async with direct(cluster, info.id) as (pool, keys):
        stored = await read_stored_entry(
            pool, BookieId(bookie), keys, EntryId(9), has_password=False
        )
        assert stored.verdict is DigestVerdict.INVALID
        assert "entry 9 fails its digest" in stored.reason or "CRC" in stored.reason


async def test_a_mac_is_not_called_valid_without_the_password(cluster: TestCluster) -> None:
    info = await write(cluster.client(), PASSWORD)
    bookie = info.fragments[0].ensemble[1]
    async with direct(cluster, info.id, PASSWORD) as (pool, keys):
        stored = await read_stored_entry(
            pool, BookieId(bookie), keys, EntryId(3), has_password=False
        )
    assert stored.verdict is DigestVerdict.NEEDS_PASSWORD


async def test_a_missing_entry_is_a_status_without_payload(cluster: TestCluster) -> None:
    info = await write(cluster.client())
    bookie = cluster.bookie(info.fragments[0].ensemble[0])
    async with direct(cluster, info.id) as (pool, keys):
        for status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER):
            with pytest.raises(BookieCallError) as caught:
                await read_stored_entry(
                    pool, BookieId(bookie.id), keys, EntryId(10), has_password=False
                )
            assert caught.value.status is status
            bookie.ledgers.clear()


async def test_two_replicas_are_compared_by_their_digests(cluster: TestCluster) -> None:
    info = await write(cluster.client())
    a, b, c = (cluster.bookie(bookie) for bookie in info.fragments[0].ensemble)
    ledger_id = LedgerId(info.id)
    b.damage(ledger_id, 5)
    held = c.ledgers[ledger_id].entries
    del held[0]
    async with direct(cluster, info.id) as (pool, keys):
        other = build_batch(ledger_id, EntryId(2), EntryId(1), 0, [b"other"], keys.seed)
        held[1] = BatchView(held[1].cut(EntryId(1), EntryId(1)))
        held[2] = BatchView(other)
        readings = {bookie.id: ReplicaReading(pool, bookie.id, keys) for bookie in (a, b, c)}
        found = [replica async for replica in compare_replicas(readings[a.id], readings[b.id])]
        assert found == [
            ComparedRange(0, 4, RangeVerdict.EQUAL),
            ComparedRange(5, 9, RangeVerdict.UNREADABLE_B),
        ]
        found = [replica async for replica in compare_replicas(readings[a.id], readings[c.id])]
        assert found == [
            ComparedRange(0, 0, RangeVerdict.ONLY_A),
            ComparedRange(1, 1, RangeVerdict.EQUAL),
            ComparedRange(2, 2, RangeVerdict.DIFFERENT),
            ComparedRange(3, 9, RangeVerdict.EQUAL),
        ]


async def test_a_bookie_that_must_hold_no_entry_may_be_away(cluster: TestCluster) -> None:
    info = await write(cluster.client())
    away = BookieId("away")
    async with direct(cluster, info.id) as (pool, keys):
        store = LedgerStore(MemoryMetadataStore(cluster.server), Random(7), lambda: 0)
        ledger, _ = await store.get(LedgerId(info.id))
        kept = ledger.fragments[0].ensemble[:2]
        for first, is_well in ((10, True), (9, False)):
            fragments = (*ledger.fragments, Fragment(EntryId(first), (*kept, away)))
            changed = replace(ledger, fragments=fragments)
            reports = await verify_replicas(pool, changed, keys, 9, lambda _: None)
            found = {report.bookie_id: report for report in reports}
            assert found[away].error
            assert found[away].is_well is is_well
            assert all(found[bookie].is_well for bookie in kept)
