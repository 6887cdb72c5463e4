"""Parts of one broker: cluster view, coordinators and partition leadership.

Leaves starting and stopping them to `broker_process`, and sockets to `server`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from broker_layer.administration import topic_admin_handlers
from broker_layer.administration.acl_admin import AclAdmin
from broker_layer.administration.moving_ledgers import MovingLedgers
from broker_layer.administration.mutation_quota import MutationQuota
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.control.bookie_states import BookieStates
from broker_layer.control.cluster_view import ClusterView, ViewSources
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.controller import Controller, ControllerParts
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.ledger_sweeping import LedgerSweeper
from broker_layer.control.live_bookies import LiveBookies
from broker_layer.control.partition_existence import PartitionExistence
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.partition_opener import CoordinatorPartitions, PartitionOpener
from broker_layer.control.partition_upkeep import ReplicaReports, RetentionTimer
from broker_layer.control.topic_changes import TopicChangeParts, TopicChanges
from broker_layer.control.topic_erasing import TopicEraser
from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker_layer.groups import handlers as group_handlers
from broker_layer.groups.config import GroupsConfig
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.handlers import Handler
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.settings.topic_configs import TopicDefaults
from broker_layer.log.topic_log import TopicLog
from broker_layer.options import (
    BrokerOptions,
    authorizer_config,
    listener_for_brokers,
    topic_default_configs,
)
from broker_layer.peer import OPEN, PeerAccess, Peers
from broker_layer.transactions import handlers as transaction_handlers
from broker_layer.transactions.config import TransactionConfig
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.local_markers import LocalMarkerWriter
from broker_layer.transactions.marker_handler import MarkerHandler
from broker_layer.transactions.marker_messages import PeerMarkers
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.verification import TransactionVerifier
from broker_layer.transactions.verification_guards import VerificationGuards
from broker_layer.transactions.view_leaders import ViewLeaders
from ledger_client import ClientConfig, LedgerClient
from metadata.brokers.broker_registry import BrokerDirectory
from metadata.brokers.election import ControllerElection
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import COOKIES, PRODUCER_IDS, REPAIR_JOBS
from metadata.registry.directory import BookieDirectory
from metadata.repair.lifecycle_store import Lifecycles
from metadata.security.acl_store import AclStore, AclView
from metadata.security.quota_table import QuotaTable
from metadata.security.user_table import UserTable
from metadata.store.child_names import ChildNames
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import NumberBlocks
from metadata.topics.in_sync_reports import InSyncReporter, InSyncView
from metadata.topics.partition_store import PartitionStore
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic_store import TopicStore
from quire.server.option_reading import with_options

PROCESS_NAME_BYTES: Final = 4
LAC_DELAY_S: Final = 1.0
"""Idle time of a partition before its writer sends the LAC to the bookies, in seconds. Consumers
get the high watermark from the leader, so only programs that read ledgers directly wait for it."""
APPEND_DEADLINE_S: Final = 600.0
"""Deadline of an append, in seconds. It is longer than any `replica.lag.time.max.ms`, so lagging
replicas leave the in-sync set before an append fails."""
NAMES_INTERVAL_S: Final = 1.0
"""Least pause between two reads of the names of the jobs of repair, and of the bookies."""


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """Inputs of a broker: its options, and the services that a simulation replaces."""

    options: BrokerOptions
    store: MetadataStore
    client: LedgerClient
    rng: Random
    wall_clock_ms: Callable[[], int]
    now: Callable[[], float]
    build: str
    secret_rng: Random | None = None
    """Randomness of nonces and keys, a `random.SystemRandom`; None, in tests: `rng`."""
    peer_access: PeerAccess = OPEN
    """How connections to other brokers begin."""


class ClusterParts:
    """The parts that follow the state of the cluster and change its topics."""

    def __init__(self, environment: BrokerEnvironment) -> None:
        options, store, rng = environment.options, environment.store, environment.rng
        self.topics = TopicStore(store, rng)
        self.directory = BrokerDirectory(store, rng)
        self.election = ControllerElection(store, options.broker_id, rng)
        self.reports = InSyncView(store, rng)
        self.replica_numbers = ReplicaNumbers(store, rng)
        self.users = UserTable(store, rng)
        self.quotas = QuotaTable(store, rng)
        self._bookies = BookieDirectory(store, rng)
        self.bookies = LiveBookies(self._bookies, self.replica_numbers)
        self._lifecycles = Lifecycles(store, rng)
        self._formatted = ChildNames(store, COOKIES, rng, interval_s=NAMES_INTERVAL_S)
        self.repair_jobs = ChildNames(store, REPAIR_JOBS, rng, interval_s=NAMES_INTERVAL_S)
        self.bookie_states = BookieStates(self._bookies, self._lifecycles, self._formatted)
        sources = ViewSources(store, self.topics, self.directory, self.election, self.reports)
        self.view = ClusterView(sources, rng, session_timeout_s=options.session_timeout_s)
        self.authorizer_config = authorizer_config(options)
        self.acls = None if self.authorizer_config is None else AclView(store, rng)
        """Access control lists; None without an authorizer."""
        self.acl_admin = AclAdmin(AclStore(store, rng), self.acls) if self.acls else None
        self.config = control_config(options)
        self.changes = TopicChanges(
            TopicChangeParts(
                self.view,
                self.topics,
                self.config,
                environment.wall_clock_ms,
                self.bookies.count,
                rng,
            )
        )

    async def start(self) -> None:
        """Start following the cluster. Raises MetadataError."""
        if self.acls is not None:
            await self.acls.start()
        await self._bookies.start()
        self.bookies.start()
        await self._lifecycles.start()
        self._formatted.start()
        self.repair_jobs.start()
        self.bookie_states.start()
        await self.users.start()
        await self.quotas.start()
        await self.directory.start()
        await self.reports.start()
        await self.election.start()
        self.view.start()

    async def aclose(self) -> None:
        """Stop following the cluster, and resign if this broker is the controller."""
        await self.view.aclose()
        await self.election.aclose()
        await self.reports.aclose()
        await self.directory.aclose()
        await self.quotas.aclose()
        await self.users.aclose()
        self.bookie_states.aclose()
        await self.repair_jobs.aclose()
        await self._formatted.aclose()
        await self._lifecycles.aclose()
        await self.bookies.aclose()
        await self._bookies.aclose()
        if self.acls is not None:
            await self.acls.aclose()


class CoordinatorParts:
    """The coordinators of groups and transactions."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        cluster: ClusterParts,
        log_of: Callable[[str, int], TopicLog],
        peer_listener: str,
    ) -> None:
        options, rng, view = environment.options, environment.rng, cluster.view
        config = TransactionConfig(timeout_ms_max=options.transaction_timeout_max_ms)
        group_partitions = partial(cluster.changes.ensured_partition_count, CONSUMER_OFFSETS)
        transaction_partitions = partial(view.partition_count, TRANSACTION_STATE)
        self.groups = GroupCoordinator(groups_config(options), view, rng, environment.wall_clock_ms)
        guards = VerificationGuards()
        local = LocalMarkerWriter(log_of, self.groups, guards, environment.wall_clock_ms)
        leaders = ViewLeaders(view, peer_listener, cluster.topics)
        process = f"broker-{options.broker_id}-{rng.randbytes(PROCESS_NAME_BYTES).hex()}"
        access = environment.peer_access
        self.marker_peers = Peers(f"{process}-markers", rng, access)
        self.question_peers = Peers(f"{process}-questions", rng, access)
        remote = PeerMarkers(self.marker_peers, config.marker_timeout_s)
        self.sender = MarkerSender(options.broker_id, leaders, local, remote, config, rng)
        self.transactions = TransactionCoordinator(
            self.sender,
            NumberBlocks(environment.store, rng, PRODUCER_IDS),
            transaction_partitions,
            config,
            environment.wall_clock_ms,
        )
        self.verifier = TransactionVerifier(
            options.broker_id,
            self.transactions,
            leaders,
            self.question_peers,
            transaction_partitions,
            guards,
            config.verification_timeout_s,
        )
        markers = MarkerHandler(local, config.marker_store_wait_s)
        self.handlers: dict[int, Handler] = {
            **group_handlers.handlers(self.groups, self.verifier),
            **transaction_handlers.handlers(self.transactions, leaders, markers, group_partitions),
        }
        self._end_watch = view.on_event(lambda _: self.sender.retry_soon())

    def by_topic(self) -> Mapping[str, CoordinatorPartitions]:
        """Return the coordinator that owns the partitions of each internal topic."""
        return {CONSUMER_OFFSETS: self.groups, TRANSACTION_STATE: self.transactions}

    def start(self) -> None:
        """Start the coordinators."""
        self.transactions.start()

    async def aclose(self) -> None:
        """Release every partition, in order."""
        self._end_watch()
        await self.transactions.aclose()
        await self.groups.aclose()
        await self.sender.aclose()
        await self.marker_peers.aclose()
        await self.question_peers.aclose()


class LeadingParts:
    """The parts that lead partitions, and the controller that assigns leaders."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        cluster: ClusterParts,
        coordinators: Mapping[str, CoordinatorPartitions],
    ) -> None:
        options, store, rng = environment.options, environment.store, environment.rng
        config, self._now = cluster.config, environment.now
        partitions = PartitionStore(store, rng)
        services = LogServices(
            environment.client,
            partitions,
            environment.wall_clock_ms,
            rng,
            TailMemory(),
            partition_exists=PartitionExistence(cluster.view, cluster.topics).check,
        )
        opening = PartitionOpener(services, cluster.view, config.topic_defaults, coordinators)
        self.manager = PartitionManager(
            options.broker_id, cluster.view, cluster.topics, opening, config, rng
        )
        self.controller = _controller(environment, cluster, partitions, config)
        self._retention = RetentionTimer(self.manager, config, environment.wall_clock_ms)
        self._reporter = InSyncReporter(store, options.broker_id, rng)
        ledgers = LedgerStore(store, rng, environment.wall_clock_ms)
        self._moving = MovingLedgers(
            ledgers,
            cluster.repair_jobs,
            cluster.bookie_states,
            cluster.replica_numbers,
            environment.now,
        )
        self.health = LedgerHealth(
            ledgers,
            cluster.repair_jobs,
            cluster.bookie_states,
            self.manager.logs,
            environment.now,
        )
        self._replica_reports = ReplicaReports(
            self.manager, self._reporter, cluster.replica_numbers, self.health, config
        )
        self._cluster = cluster
        self._view_peers = Peers(f"broker-{options.broker_id}-views", rng, environment.peer_access)
        self._spreading = TopicSpreading(
            options.broker_id, cluster.view, self._view_peers, listener_for_brokers(options)
        )

    def handlers(self, cluster_id: str) -> dict[int, Handler]:
        """Return the handlers of the topic administration APIs, by API key."""
        cluster = self._cluster
        return topic_admin_handlers.handlers(
            topic_admin_handlers.AdminParts(
                cluster.view,
                cluster.topics,
                self.manager,
                cluster.changes,
                cluster.replica_numbers,
                cluster.bookies,
                self.health,
                self._moving,
                cluster.config,
                cluster_id,
                self._spreading,
                cluster.acl_admin,
                MutationQuota(
                    cluster.view,
                    cluster.quotas.set,
                    self._now,
                    cluster.config.topic_defaults.partitions,
                ),
            )
        )

    def start(self) -> None:
        """Start leading partitions, and controlling while this broker is the controller."""
        self.controller.start()
        self.manager.start()
        self._retention.start()
        self._reporter.start()
        self.health.start()
        self._replica_reports.start()

    async def aclose(self) -> None:
        """Release every partition that is led, in order."""
        await self._replica_reports.aclose()
        await self.health.aclose()
        await self._retention.aclose()
        await self.controller.aclose()
        await self.manager.aclose()
        await self._reporter.aclose()
        await self._view_peers.aclose()


def _controller(
    environment: BrokerEnvironment,
    cluster: ClusterParts,
    partitions: PartitionStore,
    config: ControlConfig,
) -> Controller:
    client, rng = environment.client, environment.rng
    eraser = TopicEraser(
        cluster.topics, partitions, client, ledgers_per_s=config.erased_ledgers_per_s
    )
    sweeper = LedgerSweeper(
        environment.store, partitions, client, ledgers_per_s=config.swept_ledgers_per_s
    )
    parts = ControllerParts(cluster.view, cluster.topics, cluster.election, eraser, sweeper, rng)
    return Controller(parts, config)


def client_config(options: BrokerOptions) -> ClientConfig:
    """Return the configuration of the ledger client for a broker with these options."""
    return ClientConfig(
        append_deadline_s=APPEND_DEADLINE_S,
        lac_delay_s=LAC_DELAY_S,
        session_timeout_s=options.session_timeout_s,
    )


def control_config(options: BrokerOptions) -> ControlConfig:
    """Return the configuration of topic control for a broker with these options."""
    return ControlConfig(
        topic_defaults=TopicDefaults(
            partitions=options.default_partitions,
            replication_factor=options.default_replication_factor,
            configs=topic_default_configs(options),
            is_strict=options.strict_settings,
        ),
        creates_topics=options.auto_create_topics,
        offsets_partitions=options.offsets_topic_partitions,
        transaction_state_partitions=options.transaction_topic_partitions,
    )


def groups_config(options: BrokerOptions) -> GroupsConfig:
    """Return the configuration of group coordination for a broker with these options."""
    return with_options(GroupsConfig(), options)
