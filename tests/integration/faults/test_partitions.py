"""Tests of a wire cut in one direction: writers and recoveries continue, and no entry is lost."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient, LedgerFencedError, LedgerWriter, Quorum
from ledger_client.bookies.connection_calls import BookieCallError
from metadata.ids import BookieId
from quire.local_cluster import LocalCluster
from tests.campaign.direct import open_direct
from tests.integration.faults.appending import check_told
from tests.integration.faults.island import Island, can_have_islands, island

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not can_have_islands(), reason="needs root and network namespaces"),
    pytest.mark.long,
]
COUNT = 300
WRITTEN_S = 30.0
HEALED_S = 60.0
PAUSE_S = 0.2
TRIES = 40


def payloads(first: int) -> list[bytes]:
    return [b"entry %d of an island" % (first + number) for number in range(COUNT)]


async def writer_over_the_wire(client: LedgerClient, away: Island, ack: int) -> LedgerWriter:
    """Create ledgers until one has the island's bookie in its ensemble."""
    for _ in range(TRIES):
        writer = await client.create_ledger(Quorum(3, 3, ack))
        if away.bookie_id in writer.info.fragments[-1].ensemble:
            return writer
        await writer.aclose()
        await asyncio.sleep(PAUSE_S)  # a client notices a bookie that just joined a little later
    raise AssertionError("the island's bookie was never chosen")


async def until_reached(uri: str, bookie_id: BookieId) -> None:
    """Wait for a bookie that may have lost its session, and with it its registration."""
    async with open_direct(uri) as direct, asyncio.timeout(HEALED_S):
        while True:
            try:
                await direct.pool.ping(bookie_id, timeout_s=HEALED_S)
            except BookieCallError:
                await asyncio.sleep(PAUSE_S)
            else:
                return


@pytest.mark.parametrize("ack", [2, 3])
@pytest.mark.parametrize("lost", ["its_answers", "our_requests"])
async def test_a_one_way_partition_stops_neither_writer_nor_recovery(
    cluster: LocalCluster, tmp_path: Path, lost: str, ack: int
) -> None:
    uri = cluster.metadata_uri
    async with (
        island(uri, tmp_path) as away,
        LedgerClient(uri) as client,
        LedgerClient(uri) as other,
    ):
        writer = await writer_over_the_wire(client, away, ack)
        await writer.append_many(payloads(0))
        getattr(away, f"lose_{lost}")()
        ids = await writer.append_many(payloads(COUNT), timeout=WRITTEN_S)
        assert ids[-1] == 2 * COUNT - 1
        info = await other.recover_ledger(writer.id, timeout=WRITTEN_S)
        assert info.last_entry_id == ids[-1]
        with pytest.raises(LedgerFencedError):
            await writer.append(b"too late", timeout=WRITTEN_S)
        away.heal()
        await until_reached(uri, away.bookie_id)
        await check_told(uri, writer.id, [*payloads(0), *payloads(COUNT)])  # over the wire too
