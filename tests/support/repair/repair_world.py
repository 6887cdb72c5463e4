"""Simulated cluster with processes of repair, for stories of its repair.

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ledger_client import ClientConfig, LedgerClient, Quorum
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import REPAIR_JOBS
from metadata.repair.job_store import JOB_KIND
from metadata.repair.jobs import JOB_CODEC, Job, JobState, job_name_of
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_tree import NodeChange, parent_of
from quire.repair.losses import LossParts
from tests.simulation.cluster import Cluster
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.network import NetworkOdds
from tests.simulation.nodes import BookieNode, ClientNode
from tests.simulation.plan import Plan, make_plan
from tests.simulation.repair import RepairNode
from tests.simulation.run import forget
from tests.simulation.store import StoreOdds

THREE = Quorum(ensemble=3, write=3, ack=2)
LOST_AFTER_S = 30
LONG_S = 300.0
STORY_S_MAX = 10_000.0
"""Simulated time after which a story fails that waits for something."""
PLAN = replace(
    make_plan(7),
    bookie_count=4,
    bookies_per_host=1,
    fault_every_s={},
    network=NetworkOdds(),
    store=StoreOdds(),
    config=ClientConfig(),
)


class JobNews:
    """Record of every state of every published job, in the order in which they were stored.

    A job may be done within milliseconds: a story that reads the jobs from time to time misses it.
    """

    def __init__(self, server: MemoryMetadataServer) -> None:
        self.stored: list[Job] = []
        self._server = server
        server.open_session(self)

    def published(self) -> list[Job]:
        """Return the jobs that are published now, all read in one step."""
        tree = self._server.tree
        names = sorted(filter(None, map(job_name_of, tree.children(REPAIR_JOBS))))
        return [
            JOB_CODEC.unpack("a job", tree.get(JOB_KIND.path(name)).value, name=name)
            for name in names
        ]

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        name = job_name_of(change.path.rpartition("/")[2])
        if parent_of(change.path) == REPAIR_JOBS and name is not None and change.exists_now:
            with suppress(MetadataFormatError):  # a story writes jobs that cannot be read
                self.stored.append(
                    JOB_CODEC.unpack("a job", self._server.tree.get(change.path).value, name=name)
                )


@dataclass(slots=True)
class World:
    """One cluster with processes of repair, and an outside view of its metadata."""

    cluster: Cluster
    repairers: list[RepairNode]
    store: MemoryMetadataStore
    jobs: JobNews
    client: LedgerClient | None = None
    rng: random.Random = field(default_factory=lambda: random.Random("world"))

    def bookie(self, bookie_id: str) -> BookieNode:
        return next(b for b in self.cluster.bookies if b.bookie_id == bookie_id)

    def stop_in_order(self, bookie_id: str) -> None:
        """Begin an orderly stop of a bookie, which does not start again by itself."""
        bookie = self.bookie(bookie_id)
        bookie.is_wanted = False
        bookie.begin_stop()

    def ledgers(self) -> list[LedgerMetadata]:
        known = self.cluster.model.ledgers.values()
        return [model.metadata for model in known if model.metadata is not None]

    def ledger(self, ledger_id: int) -> LedgerMetadata:
        found = self.cluster.model.ledger(LedgerId(ledger_id)).metadata
        assert found is not None
        return found

    def is_named(self, bookie_id: str) -> bool:
        return any(ledger.names(BookieId(bookie_id)) for ledger in self.ledgers())

    async def wait(self, is_so: Callable[[], bool], within_s: float = LONG_S) -> bool:
        return await self.cluster.wait_until(is_so, within_s)

    async def state_of(self, bookie_id: str) -> Lifecycle:
        store = LifecycleStore(self.store, self.rng)
        return (await store.get(BookieId(bookie_id))).state

    async def wait_for_state(self, bookie_id: str, state: Lifecycle) -> None:
        async with asyncio.timeout(LONG_S):
            while await self.state_of(bookie_id) is not state:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.5)

    async def wait_for_job(self, ledger_id: int, state: JobState) -> Job:
        def found() -> list[Job]:
            jobs = self.jobs.published()
            return [job for job in jobs if job.ledger_id == ledger_id and job.state is state]

        assert await self.wait(lambda: bool(found()))
        return found()[0]

    async def change(self, bookie_id: str, to: Lifecycle) -> None:
        await LifecycleStore(self.store, self.rng).change(BookieId(bookie_id), to, "test", 5)

    async def write(self, count: int, quorum: Quorum = THREE) -> list[int]:
        """Write closed ledgers; return their ids."""
        assert self.client is not None
        ids: list[int] = []
        for number in range(count):
            async with self.client.create_ledger(quorum) as writer:
                await writer.append_many([b"%d of %d" % (each, number) for each in range(20)])
            ids.append(writer.id)
        return ids

    async def read(self, ids: Sequence[int]) -> None:
        """Check the entries of ledgers that `write` wrote."""
        assert self.client is not None
        for number, ledger_id in enumerate(ids):
            async with self.client.open_ledger(ledger_id) as reader:
                found = [entry.data async for batch in reader.read(0, 19) for entry in batch]
            assert found == [b"%d of %d" % (each, number) for each in range(20)]


async def loss_parts(
    world: World, ledger: LedgerMetadata
) -> tuple[LossParts, BookiePool, LedgerKeys]:
    """Return what a search for lost entries needs, with the connections of the world's client."""
    assert world.client is not None
    parts = LossParts(
        world.store,
        LedgerStore(world.store, world.rng, lambda: 5),
        world.rng,
        lambda: 1_700_000_000_000,
    )
    pool = (await world.client._session.services()).pool
    keys = LedgerKeys.of(ledger, b"")
    pool.attach(keys.ledger_id, keys.master_key)
    return parts, pool, keys


Story = Callable[[World], Awaitable[None]]


def play(
    story: Story, *, bookies: int = 4, repairers: int = 1, seed: int = 1, **settings: int
) -> None:
    """Run a story in a cluster with a client."""
    play_plan(story, replace(PLAN, bookie_count=bookies), repairers, seed, settings)


def play_plan(
    story: Story, plan: Plan, repairers: int, seed: int, settings: Mapping[str, int]
) -> None:
    """Run a story in the cluster of a plan with a client."""
    loop = SimulationLoop(seed)

    async def main() -> None:
        cluster = Cluster(loop, plan, Model(loop))
        nodes = [RepairNode(cluster, number) for number in range(repairers)]
        news = JobNews(cluster.metadata)
        world = World(cluster, nodes, MemoryMetadataStore(cluster.metadata), news)
        for bookie in cluster.bookies:
            bookie.start()
        assert await world.wait(lambda: all(b.is_serving for b in cluster.bookies))
        chosen = {"lost_after_s": LOST_AFTER_S, "urgent_after_s": 10} | dict(settings)
        await RepairSettingsStore(world.store, world.rng).change(**chosen)
        for node in nodes:
            node.start()
        done = loop.create_future()

        async def work(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            world.client = client
            try:
                await story(world)
            except BaseException as error:  # noqa: BLE001 - the test gets it
                done.set_exception(error)
            else:
                done.set_result(None)
            await asyncio.Event().wait()

        ClientNode(cluster, "client", work).start()
        async with asyncio.timeout(STORY_S_MAX):
            await done
        crashes = [
            violation for violation in cluster.model.violations if violation.checker == "crash"
        ]
        assert not crashes, "the other checkers do not know what a story writes"

    try:
        loop.run_until_complete(main())
    finally:
        forget(loop)
