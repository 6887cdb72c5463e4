"""Tests of bookies that die, return or are corrupted: no acknowledged entry is lost."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient
from ledger_client.digest import LedgerKeys
from quire.local_cluster import LocalCluster
from tests.campaign.checker import check_campaign
from tests.campaign.direct import open_direct, read_copies, wanted_ranges
from tests.campaign.history import AckedRange
from tests.campaign.payloads import HEADER, Payloads
from tests.integration.faults.appending import SEED, appending, check_kept
from tests.integration.quire.command import pause_repair

pytestmark = pytest.mark.asyncio(loop_scope="session")
FLIPPED = (10, 700, 1_500, 2_999)
"""Entries in whose copy one bit is flipped."""


async def test_kill_9_of_every_bookie_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(2_000)
        for bookie in cluster.bookies:
            bookie.kill()
        await asyncio.gather(*[bookie.restart() for bookie in cluster.bookies])
        history = await writer.stop()
    report = await check_kept(cluster.metadata_uri, history)
    assert report.acked_entries >= 2_000


@pytest.mark.parametrize("ack", [2, 3])
async def test_kill_9_of_one_while_appending(
    cluster: LocalCluster, tmp_path: Path, ack: int
) -> None:
    async with appending(cluster.metadata_uri, tmp_path, ack=ack) as writer:
        await writer.wait_for_acks(500)
        member = await _member(cluster, await writer.ledger_id())
        cluster.bookies[member].kill()
        await writer.wait_for_acks(1_000)  # without it, and before it returns
        await cluster.bookies[member].restart()
        history = await writer.stop()
    assert history.failures == {}
    report = await check_kept(cluster.metadata_uri, history)
    assert report.fragments == 2


async def test_the_checker_finds_a_false_history(cluster: LocalCluster, tmp_path: Path) -> None:
    """Check that the checker reports a false history."""
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(300)
        history = await writer.stop()
    await check_kept(cluster.metadata_uri, history)
    ledger = next(iter(history.ledgers.values()))
    last = ledger.acked[-1]

    async def kinds() -> set[str]:
        uri = cluster.metadata_uri
        report = await check_campaign(uri, history, SEED, None, lambda _: None)
        return {violation.kind for violation in report.violations}

    ledger.acked[-1] = AckedRange(last.first, last.last, "0" * 64)
    assert await kinds() == {"changed"}
    ledger.acked[-1] = last
    ledger.acked.append(AckedRange(last.last + 1, last.last + 1, last.digest))
    assert await kinds() == {"lost", "under-replicated"}


async def test_a_corrupted_replica_is_never_returned(cluster: LocalCluster, tmp_path: Path) -> None:
    """Reads come from other replicas; damaged entries are UNKNOWN, never "no such entry"."""
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(3_000)
        history = await writer.stop()
    ledger_id = next(iter(history.ledgers))
    uri = cluster.metadata_uri
    pause_repair(uri)
    bookie = cluster.bookies[await _member(cluster, ledger_id)]
    await bookie.stop()
    assert len(_flip_bytes(bookie.data_dir / "log", ledger_id)) == len(FLIPPED)
    await bookie.start()
    async with open_direct(uri) as direct:
        metadata = await direct.metadata(ledger_id)
        assert metadata.last_entry_id is not None
        wanted = wanted_ranges(metadata, metadata.last_entry_id)
        keys = LedgerKeys.of(metadata, b"")
        for mine in [each for each in wanted if each == bookie.id]:
            held = await read_copies(direct, keys, mine, wanted[mine])
            assert held.missing == []
            unreadable = {number for a, b in held.damaged for number in range(a, b + 1)}
            assert set(FLIPPED) <= unreadable
    async with LedgerClient(uri) as client, client.open_ledger(ledger_id) as reader:
        count = 0
        async for batch in reader.read():
            count += len(batch)
    assert count == history.acked_count
    report = await check_campaign(uri, history, SEED, None, lambda _: None)
    assert {violation.kind for violation in report.violations} == {"damaged"}


async def _member(cluster: LocalCluster, ledger_id: int) -> int:
    """Return the index of a bookie of a ledger's last fragment."""
    async with LedgerClient(cluster.metadata_uri) as client:
        info = await client.ledger_info(ledger_id)
    ids = [bookie.id for bookie in cluster.bookies]
    return ids.index(info.fragments[-1].ensemble[0])


def _flip_bytes(directory: Path, ledger_id: int) -> list[Path]:
    """Flip one bit in the payload of each of some entries, at every place in the log."""
    payloads, flipped = Payloads(SEED), []
    for path in sorted(directory.iterdir()):
        data = bytearray(path.read_bytes())
        for entry_id in FLIPPED:
            at = data.find(payloads.make(ledger_id, entry_id)) + HEADER.size
            if at >= HEADER.size:
                data[at] ^= 1
                flipped.append(path)
        path.write_bytes(data)
    return flipped
