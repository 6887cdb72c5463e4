"""Test that a fence on a bookie without the ledger survives restarts (protocol rule 7.2)."""

import asyncio
import urllib.request

import pytest

from bookie.wire.messages import Status
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.direct import open_direct
from tests.integration.faults.raw_ledger import TIMEOUT_S, make_ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_fence_on_an_idle_bookie_survives(
    cluster: LocalCluster, *, has_checkpoint: bool, is_killed: bool
) -> None:
    bookie = cluster.bookies[0]
    async with open_direct(cluster.metadata_uri) as direct:
        ledger = await make_ledger(
            direct, [local_bookie.id for local_bookie in cluster.bookies[:3]], ack=2
        )
        await ledger.fence(ledger.metadata.last_fragment.ensemble[0])
        if has_checkpoint:
            await asyncio.to_thread(_checkpoint, bookie)
        if is_killed:
            bookie.kill()
        await bookie.restart()
    async with open_direct(cluster.metadata_uri) as direct:  # as a client that just connected
        again = ledger.attached_to(direct)
        fenced, other = ledger.metadata.last_fragment.ensemble[:2]
        refused = await asyncio.wait_for(again.send(fenced, 0, [b"late"]), TIMEOUT_S)
        assert refused is Status.FENCED
        await again.store(other, 0, [b"in time"])
        await again.require_held({other: [b"in time"]})


def _checkpoint(bookie: LocalBookie) -> None:
    request = urllib.request.Request(f"{bookie.admin_url}/api/v1/checkpoint", method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        assert answer.status == 200
