"""Workers are registered for as long as they live, and all know how many there are."""

import asyncio
import random

import pytest

from metadata.errors import NameHeldError
from metadata.ids import BookieId
from metadata.paths import repair_worker_path
from metadata.repair.workers import WorkerDirectory, WorkerRegistrar, WorkerReport
from metadata.store.memory import MemoryMetadataStore
from tests.until import until


async def test_workers_are_counted(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    directory = WorkerDirectory(other_store, rng)
    counts: list[int] = []
    directory.on_change(lambda: counts.append(directory.count))
    await directory.start()
    assert directory.count == 0
    first = WorkerRegistrar(store, "worker-b", rng)
    await first.start()
    await until(lambda: directory.count == 1)
    second = WorkerRegistrar(other_store, "worker-a", rng)
    await second.start()
    await until(lambda: directory.worker_ids == ["worker-a", "worker-b"])
    counts.clear()
    store.expire()
    await until(lambda: counts == [1, 2])  # it registers again in its new session
    assert (await store.get(repair_worker_path("worker-b"))).ephemeral
    await first.aclose()
    await until(lambda: directory.worker_ids == ["worker-a"])
    await second.aclose()
    await until(lambda: directory.count == 0)
    await directory.aclose()
    third = WorkerRegistrar(store, "worker-c", rng)
    await third.start()
    await asyncio.sleep(0.05)
    assert directory.count == 0, "it is not followed any more"
    await third.aclose()


async def test_a_worker_says_which_bookies_it_does_not_reach(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    directory = WorkerDirectory(other_store, rng)
    await directory.start()
    workers = [WorkerRegistrar(store, f"worker-{worker}", rng) for worker in "ab"]
    for worker, host in zip(workers, ("h1", "h2"), strict=True):
        await worker.start()
        worker.report(WorkerReport(host, (BookieId("b"),)))
    await until(lambda: directory.unreached == {"b": ["h1", "h2"]})
    workers[0].report(WorkerReport("h1"))
    await until(lambda: directory.unreached == {"b": ["h2"]})
    await directory.aclose()
    for worker in workers:
        await worker.aclose()


async def test_another_value_of_a_worker_is_no_change(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    path = repair_worker_path("worker-a")
    version = await store.create(path, b"first")
    directory = WorkerDirectory(store, rng)
    await directory.start()
    counts: list[int] = []
    directory.on_change(lambda: counts.append(directory.count))
    await store.compare_and_set(path, b"second", version)
    await store.create(repair_worker_path("worker-b"), b"")
    await until(lambda: directory.count == 2)
    assert counts == [2]
    await directory.aclose()


async def test_an_id_belongs_to_one_process(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = WorkerRegistrar(store, "worker-a", rng)
    await first.start()
    with pytest.raises(NameHeldError):
        await WorkerRegistrar(other_store, "worker-a", rng).start(held_wait_s=1)
    lost: list[NameHeldError] = []
    second = WorkerRegistrar(other_store, "worker-b", rng, on_lost=lost.append)
    await second.start()
    other_store.expire()
    path = repair_worker_path("worker-b")
    await store.create(path, (await store.get(repair_worker_path("worker-a"))).value)
    await until(lambda: bool(lost))
    await second.aclose()
    await first.aclose()
