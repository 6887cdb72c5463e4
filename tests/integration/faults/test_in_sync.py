"""Tests of in-sync mode on real processes: members are killed or paused, return, and catch up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ledger_client import (
    ClientConfig,
    LedgerClient,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    Quorum,
    RecoveryUndecidedError,
)
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.support.pausing import paused
from tests.until import WAIT_S, until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
PATIENT = ClientConfig(spare_after_s=1000.0)
BATCH = [b"%04d" % number for number in range(500)]


@asynccontextmanager
async def writing(
    cluster: LocalCluster, quorum: Quorum, config: ClientConfig = PATIENT
) -> AsyncIterator[LedgerWriter]:
    async with LedgerClient(cluster.metadata_uri, config=config) as client:
        writer = await client.create_ledger(quorum)
        try:
            yield writer
        finally:
            await writer.abort()


def members(cluster: LocalCluster, writer: LedgerWriter) -> list[LocalBookie]:
    ids = writer.info.fragments[-1].ensemble
    return [next(b for b in cluster.bookies if b.id == bookie) for bookie in ids]


async def read_all(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    async with LedgerClient(cluster.metadata_uri) as client:
        info = await client.recover_ledger(ledger_id)
        assert info.last_entry_id is not None
        async with client.open_ledger(ledger_id) as reader:
            batches = reader.read(0, info.last_entry_id)
            return [entry.data async for batch in batches for entry in batch]


async def test_a_killed_member_returns_and_the_others_may_leave(cluster: LocalCluster) -> None:
    async with writing(cluster, Quorum.in_sync(3, 2)) as writer:
        await writer.append_many(BATCH)
        first, *others = members(cluster, writer)
        first.kill()
        await writer.append_many(BATCH)
        assert first.id not in writer.in_sync
        await first.restart()
        await until(lambda: first.id in writer.in_sync, WAIT_S)
        await writer.append_many(BATCH)
        for other in others:
            other.kill()
        ledger_id = writer.id
        try:
            assert await read_all(cluster, ledger_id) == BATCH * 3
        finally:
            for other in others:
                await other.restart()


async def test_a_stopped_member_is_dropped_and_catches_up(cluster: LocalCluster) -> None:
    async with writing(cluster, Quorum.in_sync(3, 2)) as writer:
        await writer.append_many(BATCH)
        slow = members(cluster, writer)[1]
        with paused(slow.pid):
            await writer.append_many(BATCH)
            assert slow.id not in writer.in_sync
            assert len(writer.in_sync) == 2
        await until(lambda: slow.id in writer.in_sync, WAIT_S)
        await writer.append_many(BATCH)
        ledger_id = writer.id
    assert await read_all(cluster, ledger_id) == BATCH * 3


async def test_below_min_in_sync_no_append_is_accepted_and_no_entry_is_lost(
    cluster: LocalCluster,
) -> None:
    async with writing(cluster, Quorum.in_sync(2, 2)) as writer:
        await writer.append_many(BATCH)
        lost = members(cluster, writer)[0]
        lost.kill()
        pending = asyncio.ensure_future(writer.append(b"waits"))
        await until(lambda: len(writer.in_sync) == 1, WAIT_S)
        with pytest.raises(NotEnoughInSyncReplicasError):
            await writer.append(b"refused")
        await lost.restart()
        assert await asyncio.wait_for(pending, WAIT_S) == len(BATCH)
        ledger_id = writer.id
    assert await read_all(cluster, ledger_id) == [*BATCH, b"waits"]


async def test_a_spare_replaces_a_member_that_cannot_leave(cluster: LocalCluster) -> None:
    config = ClientConfig(spare_after_s=1.0)
    async with writing(cluster, Quorum.in_sync(2, 2), config) as writer:
        await writer.append_many(BATCH)
        lost = members(cluster, writer)[0]
        lost.kill()
        try:
            assert await writer.append(b"on the spare too", timeout=WAIT_S) == len(BATCH)
            assert len(writer.in_sync) == 2
            assert lost.id not in [b for f in writer.info.fragments for b in f.ensemble]
            ledger_id = writer.id
        finally:
            await lost.restart()
    assert await read_all(cluster, ledger_id) == [*BATCH, b"on the spare too"]


async def test_unclean_recovery_keeps_entries_of_an_earlier_member(cluster: LocalCluster) -> None:
    async with writing(cluster, Quorum.in_sync(2, 1)) as writer:
        await writer.append_many(BATCH)
        first, second = members(cluster, writer)
        first.kill()
        await writer.append(b"on one disk alone")
        second.kill()
        config = ClientConfig(read_timeout_s=1.0)
        try:
            async with LedgerClient(cluster.metadata_uri, config=config) as client:
                with pytest.raises(RecoveryUndecidedError):
                    await client.recover_ledger(writer.id)  # from now on the writer adds no member
                await first.restart()
                with pytest.raises(RecoveryUndecidedError):
                    await client.recover_ledger(writer.id)
                info = await client.recover_ledger_unclean(writer.id)
            assert info.last_entry_id == len(BATCH) - 1
            assert [fragment.ensemble for fragment in info.given_up] == [(second.id,)]
            assert await read_all(cluster, writer.id) == BATCH
        finally:
            await second.restart()
