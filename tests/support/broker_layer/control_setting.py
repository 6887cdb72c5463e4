"""The control parts of brokers, with a metadata store and bookies in memory."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from broker_layer.control.bookie_states import BookieStates
from broker_layer.control.cluster_view import ClusterView, ViewSources
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.controller import Controller, ControllerParts
from broker_layer.control.ledger_erasing import LedgerSweeper, TopicEraser
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.partition_opener import (
    CoordinatorPartitions,
    PartitionExistence,
    PartitionOpener,
)
from broker_layer.control.topic_changes import NewTopic, TopicChanges
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.topic_configs import TopicDefaults
from broker_layer.log.topic_log import TopicLog
from metadata.brokers.broker_registry import (
    BrokerDirectory,
    BrokerRegistrar,
    BrokerRegistration,
    Listener,
)
from metadata.brokers.election import ControllerElection
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import COOKIES, REPAIR_JOBS
from metadata.registry.directory import BookieDirectory
from metadata.repair.lifecycle_store import Lifecycles
from metadata.store.child_names import ChildNames
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.in_sync_reports import InSyncView
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore
from tests.support.ledger_client.cluster import TestCluster
from tests.until import WAIT_S, until

CONFIG = ControlConfig(
    topic_defaults=TopicDefaults(replication_factor=1),
    assembly_s=0.0,
    settled_s=0.0,
    rebalance_interval_s=0.05,
    take_over_pause_max_s=0.2,
    offsets_partitions=2,
    transaction_state_partitions=2,
    erased_ledgers_per_s=1000.0,
)
LISTENER = "PLAINTEXT"


def registration(broker_id: int, *, is_leaving: bool = False) -> BrokerRegistration:
    listeners = (Listener(LISTENER, f"host-{broker_id}", 9000 + broker_id),)
    return BrokerRegistration(broker_id, listeners, is_leaving=is_leaving)


@dataclass
class Broker:
    """One broker's control parts."""

    cluster: TestCluster
    broker_id: int
    config: ControlConfig = CONFIG
    coordinators: dict[str, CoordinatorPartitions] = field(default_factory=dict)
    session_timeout_s: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        seed = self.seed * 100
        self.store = MemoryMetadataStore(
            self.cluster.server, session_timeout_s=self.session_timeout_s
        )
        self.topics = TopicStore(self.store, Random(seed))
        self.partitions = PartitionStore(self.store, Random(seed + 1))
        self.client = self.cluster.client(append_deadline_s=600.0, call_timeout_s=1.0)
        self.registrar = BrokerRegistrar(self.store, registration(self.broker_id), Random(seed + 2))
        self.directory = BrokerDirectory(self.store, Random(seed + 3))
        self.election = ControllerElection(self.store, self.broker_id, Random(seed + 4))
        self.reports = InSyncView(self.store, Random(seed + 5))
        self.view = ClusterView(
            ViewSources(self.store, self.topics, self.directory, self.election, self.reports),
            Random(seed + 6),
            session_timeout_s=self.session_timeout_s,
        )
        services = LogServices(
            client=self.client,
            partitions=self.partitions,
            wall_clock_ms=lambda: 1_700_000_000_000,
            rng=Random(seed + 7),
            tail=TailMemory(1 << 20),
            partition_exists=PartitionExistence(self.view, self.topics).check,
        )
        opening = PartitionOpener(
            services, self.view, self.config.topic_defaults, self.coordinators
        )
        self.manager = PartitionManager(
            self.broker_id, self.view, self.topics, opening, self.config, Random(seed + 8)
        )
        self.bookies = BookieDirectory(self.store, Random(seed + 11), jitter_s=0.0)
        self.lifecycles = Lifecycles(self.store, Random(seed + 12))
        self.formatted = ChildNames(self.store, COOKIES, Random(seed + 13), interval_s=0.0)
        self.repair_jobs = ChildNames(self.store, REPAIR_JOBS, Random(seed + 14), interval_s=0.0)
        self.states = BookieStates(self.bookies, self.lifecycles, self.formatted)
        self.ledgers = LedgerStore(self.store, Random(seed + 15), lambda: 1_700_000_000_000)
        self.health = LedgerHealth(
            self.ledgers,
            self.repair_jobs,
            self.states,
            self.manager.logs,
            lambda: asyncio.get_running_loop().time(),
        )
        eraser = TopicEraser(
            self.topics,
            self.partitions,
            self.client,
            ledgers_per_s=self.config.erased_ledgers_per_s,
        )
        self.sweeper = LedgerSweeper(
            self.store,
            self.partitions,
            self.client,
            ledgers_per_s=self.config.swept_ledgers_per_s,
        )
        self.controller = Controller(
            ControllerParts(
                self.view, self.topics, self.election, eraser, self.sweeper, Random(seed + 9)
            ),
            self.config,
        )
        self.changes = TopicChanges(
            self.view,
            self.topics,
            self.config,
            lambda: 1_700_000_000_000,
            lambda: len(self.cluster.bookies),
            Random(seed + 10),
        )

    async def start(self) -> None:
        await self.registrar.start()
        await self.directory.start()
        await self.reports.start()
        await self.election.start()
        await self.bookies.start()
        await self.lifecycles.start()
        self.formatted.start()
        self.repair_jobs.start()
        self.states.start()
        self.view.start()
        self.controller.start()
        self.manager.start()
        await until(lambda: self.view.is_complete)

    async def stop(self) -> None:
        """Leave the cluster in order."""
        await self.controller.aclose()
        await self.manager.aclose()
        await self._close_rest()

    async def kill(self) -> None:
        """End the session without closing anything in order."""
        await self.store.aclose()
        await self.client.aclose()
        for held in self.manager._all():
            held.serving = held._opened = None
        await self.controller.aclose()
        await self.manager.aclose()
        await self._close_rest()

    async def _close_rest(self) -> None:
        self.states.aclose()
        await self.repair_jobs.aclose()
        await self.formatted.aclose()
        await self.lifecycles.aclose()
        await self.bookies.aclose()
        await self.view.aclose()
        await self.election.aclose()
        await self.registrar.aclose()
        await self.directory.aclose()
        await self.reports.aclose()
        await self.store.aclose()

    async def create(self, name: str, partitions: int = 1, **configs: str) -> TopicRecord:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name, partitions=partitions, replication_factor=1, configs=settings)
        return await self.changes.store(self.changes.plan(wanted), WAIT_S)

    def leaders(self, topic: str) -> list[int]:
        record = self.view.topics.get(topic)
        return [] if record is None else [partition.leader for partition in record.partitions]

    def epochs(self, topic: str) -> list[int]:
        return [partition.leader_epoch for partition in self.view.topics[topic].partitions]

    def leads(self, topic: str, partition: int = 0) -> bool:
        held = self.manager._assigned.get(topic, {}).get(partition)
        return held is not None and isinstance(held.serving, TopicLog)

    async def log(self, topic: str, partition: int = 0) -> TopicLog:
        await until(lambda: self.leads(topic, partition))
        return self.manager.log_of(topic, partition)


class Setting:
    """Some bookies, and brokers that join and leave."""

    def __init__(self) -> None:
        self.cluster = TestCluster()
        self.brokers: list[Broker] = []
        self.started = 0

    async def start(self, bookies: int = 1) -> None:
        for _ in range(bookies):
            await self.cluster.add_bookie()

    async def broker(
        self,
        broker_id: int,
        config: ControlConfig = CONFIG,
        coordinators: dict[str, CoordinatorPartitions] | None = None,
    ) -> Broker:
        self.started += 1
        broker = Broker(self.cluster, broker_id, config, coordinators or {}, seed=self.started)
        self.brokers.append(broker)
        await broker.start()
        return broker

    async def stop(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await broker.stop()

    async def kill(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await broker.kill()

    async def aclose(self) -> None:
        for broker in self.brokers:
            await broker.stop()
        await self.cluster.aclose()


async def until_lists_are_gone(broker: Broker, record: TopicRecord) -> None:
    """Wait until the ledgers of a dead topic, and then its lists, are deleted."""
    async with asyncio.timeout(WAIT_S):
        while await broker.partitions.partitions_of(record.topic_id):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
