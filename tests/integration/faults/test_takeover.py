"""Tests of ledgers that other clients take over from a live writer: one end, and no later acks."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ledger_client import LedgerClient
from quire.local_cluster import LocalCluster
from tests.integration.faults.appending import appending, check_kept

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
CLIENTS = 5


@pytest.mark.parametrize(("ensemble", "ack"), [(3, 2), (3, 3), (5, 2)])
async def test_five_clients_recover_one_ledger_while_its_writer_is_live(
    cluster: LocalCluster, tmp_path: Path, ensemble: int, ack: int
) -> None:
    uri = cluster.metadata_uri
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(LedgerClient(uri)) for _ in range(CLIENTS)]
        writer = await stack.enter_async_context(
            appending(uri, tmp_path, ensemble=ensemble, ack=ack)
        )
        ledger_id = await writer.ledger_id()
        await writer.wait_for_acks(500)
        infos = await asyncio.gather(*[client.recover_ledger(ledger_id) for client in clients])
        history = await writer.ended()
    assert len({(info.last_entry_id, info.length, info.fragments) for info in infos}) == 1
    assert list(history.failures) == ["LedgerFencedError"]
    last = infos[0].last_entry_id
    assert last is not None
    assert max(acked_range.last for acked_range in history.ledgers[ledger_id].acked) <= last
    await check_kept(uri, history)


async def test_a_writer_stopped_during_a_takeover_gets_no_acknowledgement_beyond_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    async with LedgerClient(uri) as client, appending(uri, tmp_path) as writer:
        ledger_id = await writer.ledger_id()
        await writer.wait_for_acks(500)
        writer.pause()
        info = await client.recover_ledger(ledger_id)
        writer.resume()
        history = await writer.ended()
        assert info == await client.ledger_info(ledger_id)
    assert list(history.failures) == ["LedgerFencedError"]
    assert info.last_entry_id is not None
    assert (
        max(acked_range.last for acked_range in history.ledgers[ledger_id].acked)
        <= info.last_entry_id
    )
    await check_kept(uri, history)


async def test_a_dead_writer_leaves_all_acknowledged_entries(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    async with appending(uri, tmp_path) as writer:
        await writer.wait_for_acks(500)
        history = writer.history
    async with LedgerClient(uri) as client:
        info = await client.recover_ledger(next(iter(history.ledgers)))
    assert info.is_closed
    await check_kept(uri, history)
