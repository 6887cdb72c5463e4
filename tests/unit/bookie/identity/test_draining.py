"""A real bookie that is drained, used again, drained and removed, by its record in the metadata."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookie.errors import BookieRemovedError
from bookie.storage.writability import Reason, reasons_of
from bookie.wire.messages import ReadEntries, Status
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.paths import bookie_path
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.store.ephemeral import unpack_held
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.bookie.wire_client import batch_of, payloads_of

FIRST = ReadEntries(LedgerId(1), EntryId(0), EntryId(0), 2**20, fence=False)


class Cluster:
    """One bookie, its operator, and its registration as clients see it."""

    def __init__(self, machine: Machine, bookie_id: BookieId) -> None:
        self.machine = machine
        self.bookie_id = bookie_id
        self.store = machine.store()
        self.states = LifecycleStore(self.store, machine.rng)
        self.bookie: Running | None = None

    async def start(self, **options: str | float) -> Running:
        self.bookie = await self.machine.start("a", **options)
        return self.bookie

    async def stop(self) -> None:
        if self.bookie is not None:
            await self.bookie.stop()
            self.bookie = None

    async def change(self, *states: Lifecycle) -> None:
        for state in states:
            await self.states.change(self.bookie_id, state, "new disks", 7)

    async def registration(self) -> BookieRegistration:
        path = bookie_path(self.bookie_id)
        value = (await self.store.get(path, fresh=True)).value
        return REGISTRATION_CODEC.unpack(path, unpack_held(path, value).content)

    async def registered(self, *, writable: bool, reasons: list[Reason]) -> None:
        """Wait until the registration shows this."""
        while True:
            found = await self.registration()
            if (found.writable, reasons_of(found.features)) == (writable, reasons):
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    machine = Machine(tmp_path)
    cluster = Cluster(machine, await machine.format())
    yield cluster
    await cluster.stop()
    await cluster.store.aclose()


async def test_a_draining_bookie_shows_it_and_accepts_adds_for_a_time(cluster: Cluster) -> None:
    bookie = await cluster.start(drain_grace_s=0.5)
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await cluster.change(Lifecycle.DRAINING)
    await cluster.registered(writable=False, reasons=[Reason.DRAINING])
    assert await client.add(batch_of(1, 1)) is Status.OK
    assert not await client.is_offered()
    number = 2
    while await client.add(batch_of(1, number)) is not Status.READ_ONLY:
        number += 1
        await asyncio.sleep(0.01)  # the clock stands still while there is input
    assert await client.add(batch_of(1, number), recovery=True) is Status.OK
    assert payloads_of(await client.request_entries(FIRST)) == {0: b"payload"}
    await cluster.change(Lifecycle.ACTIVE)
    await cluster.registered(writable=True, reasons=[])
    assert await client.add(batch_of(1, number + 1)) is Status.OK
    await client.close()


async def test_a_drained_bookie_stores_nothing_also_after_a_restart(cluster: Cluster) -> None:
    bookie = await cluster.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await cluster.change(Lifecycle.DRAINING, Lifecycle.DRAINED)
    await cluster.registered(writable=False, reasons=[Reason.DRAINED])
    for is_recovery in (False, True):
        assert await client.add(batch_of(1, 1), recovery=is_recovery) is Status.READ_ONLY
    await client.close()
    await cluster.stop()
    bookie = await cluster.start()
    await cluster.registered(writable=False, reasons=[Reason.DRAINED])
    client = await bookie.client(1)
    for is_recovery in (False, True):
        assert await client.add(batch_of(1, 1), recovery=is_recovery) is Status.READ_ONLY
    assert payloads_of(await client.request_entries(FIRST)) == {0: b"payload"}
    await client.close()


async def test_a_restarted_draining_bookie_accepts_no_add(cluster: Cluster) -> None:
    await cluster.change(Lifecycle.DRAINING)
    bookie = await cluster.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.READ_ONLY
    assert not (await cluster.registration()).writable
    await client.close()


async def test_a_removed_bookie_ends_and_starts_no_more(cluster: Cluster) -> None:
    bookie = await cluster.start()
    await cluster.change(Lifecycle.DRAINING, Lifecycle.DRAINED, Lifecycle.REMOVED)
    with pytest.raises(BookieRemovedError, match="new disks"):
        await bookie.process.wait_for_failure()
    await cluster.stop()
    with pytest.raises(BookieRemovedError, match="quire bookie format"):
        await cluster.start()
