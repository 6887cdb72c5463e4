"""Contract of the metadata of repair, as one suite that runs on each metadata store.

Leaves creating stores, and ending their sessions, to the `StoreService` of the implementation.
"""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from metadata.errors import InvalidLifecycleChangeError
from metadata.ids import BookieId, LedgerId, Version
from metadata.repair.auditor_election import AuditorElection
from metadata.repair.claims import Claim, ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import Lifecycles, LifecycleStore
from metadata.repair.settings import DEFAULTS
from metadata.repair.settings_store import RepairSettingsStore, RepairSettingsView
from metadata.repair.status import RepairStatus, UrgencyTotal
from metadata.repair.status_store import StatusStore
from metadata.repair.workers import WorkerDirectory, WorkerRegistrar
from tests.contracts.store_service import StoreService, eventually
from tests.until import WAIT_S

RNG_SEED = 7
A, B = BookieId("bookie-a"), BookieId("bookie-b")
L = LedgerId(17)


class RepairMetadataContract:
    """Tests to inherit in a class with a `service` fixture."""

    async def test_states_of_bookies_reach_all(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        first, second = await service.connect(), await service.connect()
        states = LifecycleStore(first, rng)
        view = Lifecycles(second, rng)
        await view.start()
        await states.change(A, Lifecycle.DRAINING, "a new machine", 5)
        await eventually(lambda: view.of(A).state is Lifecycle.DRAINING)
        await LifecycleStore(second, rng).change(A, Lifecycle.DRAINED, "nothing is left", 6)
        await eventually(lambda: view.of(A).state is Lifecycle.DRAINED)
        await states.change(A, Lifecycle.REMOVED, "it is empty", 7)
        with pytest.raises(InvalidLifecycleChangeError):
            await LifecycleStore(second, rng).change(A, Lifecycle.ACTIVE, "undrain", 8)
        await states.change(B, Lifecycle.LOST, "away for 600 s", 9)
        wanted = await states.get_all()
        assert [lifecycle.state for lifecycle in wanted.values()] == [
            Lifecycle.REMOVED,
            Lifecycle.LOST,
        ]
        await eventually(lambda: dict(view.records) == wanted)
        await view.aclose()

    async def test_settings_reach_all(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        stores = [await service.connect() for _ in range(2)]
        view = RepairSettingsView(stores[1], rng)
        await view.start()
        assert view.settings == DEFAULTS
        settings = [RepairSettingsStore(store, rng) for store in stores]
        await asyncio.gather(
            *[settings[i % 2].change(bytes_per_s=i) for i in range(10)],
            settings[0].change(lost_after_s=60),
        )
        await eventually(lambda: view.settings.lost_after_s == 60)
        await settings[1].change(bytes_per_s=77)
        await eventually(
            lambda: view.settings == replace(DEFAULTS, lost_after_s=60, bytes_per_s=77)
        )
        await view.aclose()

    async def test_jobs_are_published_changed_and_removed(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        here, there = [JobStore(await service.connect(), rng) for _ in range(2)]
        names = [JobName(i % 3, 1_000 - i, LedgerId(i)) for i in range(20)]
        await asyncio.gather(*[here.publish(Job(name, (), 5)) for name in names])
        assert await there.published() == sorted(names)
        job, version = await there.get(names[0])
        blocked = replace(job, state=JobState.BLOCKED, blocked_reason="needs 4 bookies, has 3")
        changed = await there.change(blocked, version)
        assert changed is not None
        assert await here.change(job, version) is None
        assert not await here.remove(names[0], version)
        assert await here.get(names[0]) == (blocked, changed)
        assert await here.remove(names[0], changed)
        assert await there.remove(names[0], Version(changed + 1))
        assert await there.published() == sorted(names[1:])

    async def test_one_worker_holds_a_claim(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        first, second = await service.connect(), await service.connect()
        here, there = ClaimStore(first, rng), ClaimStore(second, rng)
        held = await here.claim(L, "worker-a", 5)
        assert held is not None
        assert await there.claim(L, "worker-b", 6) is None
        held.report(3, 9, B)
        async with asyncio.timeout(WAIT_S):
            while await there.get_all() != [Claim(L, "worker-a", 5, 3, 9, B)]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await service.expire(first)
        await eventually(lambda: not held.is_held)
        other = None
        async with asyncio.timeout(WAIT_S):
            while other is None:
                other = await there.claim(L, "worker-b", 7)
        await held.release()
        assert [claim.worker_id for claim in await there.get_all()] == ["worker-b"]
        await other.release()
        assert await there.get_all() == []

    async def test_workers_and_the_auditor_are_seen(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        first, second = await service.connect(), await service.connect()
        directory = WorkerDirectory(second, rng)
        await directory.start()
        registrar = WorkerRegistrar(first, "worker-a", rng)
        await registrar.start()
        await eventually(lambda: directory.count == 1)
        elections = [AuditorElection(first, A, rng), AuditorElection(second, B, rng)]
        await elections[0].start()
        await eventually(lambda: elections[0].is_auditor)
        await elections[1].start()
        await eventually(lambda: elections[1].auditor_id == A)
        await service.expire(first)
        await eventually(lambda: any(auditor_election.is_auditor for auditor_election in elections))
        for election in elections:
            await election.aclose()
        await registrar.aclose()
        await eventually(lambda: directory.count == 0)
        await directory.aclose()

    async def test_the_last_summary_is_read(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        here, there = [StatusStore(await service.connect(), rng) for _ in range(2)]
        assert await there.get() is None
        status = RepairStatus(A, 5, None, 6, totals=(UrgencyTotal(1, 2, 3),))
        await here.put(status)
        assert await there.get() == status
        second = replace(status, auditor_id=B)
        await there.put(second)
        assert await here.get() == second
