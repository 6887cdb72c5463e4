"""A local cluster repairs itself, with the processes that bookies start beside them."""

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from ledger_client import LedgerClient
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.store.zookeeper.store import open_store
from quire.local_cluster import LocalCluster
from tests.support.ledger_client.cluster import THREE, entries_of

COUNT = 50
PATIENCE_S = 150.0

pytestmark = pytest.mark.long


async def test_what_a_wiped_bookie_held_is_copied_and_another_one_is_drained(
    tmp_path: Path,
) -> None:
    async with LocalCluster(4, tmp_path) as cluster, LedgerClient(cluster.metadata_uri) as client:
        store, rng = await open_store(cluster.metadata_uri, rng=Random(1)), Random(2)
        ledgers, states = LedgerStore(store, rng, lambda: 5), LifecycleStore(store, rng)
        await RepairSettingsStore(store, rng).change(lost_after_s=3, urgent_after_s=3)
        ids: list[LedgerId] = []
        for digest in ("crc32c", "hmac-sha256"):
            async with client.create_ledger(
                THREE, digest=digest, password=b"a secret password"
            ) as writer:
                await writer.append_many(b"%d" % number for number in range(COUNT))
            ids.append(LedgerId(writer.id))

        async def is_named(bookie_id: str) -> bool:
            found = [(await ledgers.get(ledger_id, fresh=True))[0] for ledger_id in ids]
            return any(metadata.names(BookieId(bookie_id)) for metadata in found)

        first, _ = await ledgers.get(ids[0], fresh=True)
        wiped = next(b for b in cluster.bookies if b.id == first.fragments[0].ensemble[0])
        wiped.kill()
        shutil.rmtree(wiped.data_dir)
        async with asyncio.timeout(PATIENCE_S):
            while await is_named(wiped.id):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.2)
        assert (await states.get(BookieId(wiped.id))).state is Lifecycle.LOST

        await cluster.add_bookie()
        drained = first.fragments[0].ensemble[1]
        await states.change(drained, Lifecycle.DRAINING, "test", 5)
        async with asyncio.timeout(PATIENCE_S):
            while (await states.get(drained)).state is not Lifecycle.DRAINED:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert not await is_named(drained)
        for ledger_id in ids:
            found = await entries_of(client, ledger_id, COUNT - 1, b"a secret password")
            assert found == [b"%d" % number for number in range(COUNT)]
        await store.aclose()
