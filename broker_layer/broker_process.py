"""Assembly, start and orderly stop of one broker.

Leaves creating the real store, clock and rng to `main`; a simulation passes others.

Invariants: a broker accepts no connection before it knows every topic, or START_WAIT_S is over; it
is registered before it can lead; a stopping broker hands over its partitions before it closes its
connections.

Source: topics design, "What a takeover does"; CONTRIBUTING.md, "Rules of the code".
"""

import asyncio
import contextlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from broker_layer.administration import topic_admin_handlers
from broker_layer.administration.acl_admin import AclAdmin
from broker_layer.administration.reassignments import MovingLedgers
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.administration.topic_admin import MutationQuota
from broker_layer.control.bookie_states import BookieStates, LiveBookies
from broker_layer.control.cluster_view import ClusterView, ViewSources
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.controller import Controller, ControllerParts
from broker_layer.control.led_partitions import LedPartitions, ReplicaReports, RetentionTimer
from broker_layer.control.ledger_erasing import LedgerSweeper, TopicEraser
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.partition_opener import (
    CoordinatorPartitions,
    PartitionExistence,
    PartitionOpener,
)
from broker_layer.control.topic_changes import TopicChanges
from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker_layer.groups import handlers as group_handlers
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.values import GroupsConfig
from broker_layer.handlers import Handler
from broker_layer.kafka.messages import warm_up
from broker_layer.kafka.versions import ADVERTISED
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.topic_configs import TopicDefaults
from broker_layer.log.topic_log import TopicLog
from broker_layer.options import BrokerOptions
from broker_layer.peer import OPEN, PeerAccess, Peers
from broker_layer.security.authorizer import Authorizer
from broker_layer.security.client_admin import QuotaHandlers, UserHandlers
from broker_layer.server.access import ListenerAccess, LoginParts, ServedLogins, access_of_listeners
from broker_layer.server.admin import BrokerAdmin, BrokerMetrics
from broker_layer.server.broker_services import BrokerServices, ServiceParts
from broker_layer.server.connections import BrokerServer
from broker_layer.server.listeners import ListenerAddress, advertise, parse_listeners
from broker_layer.server.server_limits import BrokerLimits
from broker_layer.transactions import handlers as transaction_handlers
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.leaders import ViewLeaders
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.markers import LocalMarkerWriter, MarkerHandler, PeerMarkers
from broker_layer.transactions.values import TransactionConfig
from broker_layer.transactions.verification import TransactionVerifier, VerificationGuards
from ledger_client import ClientConfig, LedgerClient
from metadata.brokers.broker_registration import ApiVersions
from metadata.brokers.broker_registry import (
    BrokerDirectory,
    BrokerRegistrar,
    BrokerRegistration,
    Listener,
)
from metadata.brokers.election import ControllerElection
from metadata.cancelling import cancel_and_wait
from metadata.errors import NameHeldError
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import COOKIES, PRODUCER_IDS, REPAIR_JOBS
from metadata.registry.cluster import require_cluster
from metadata.registry.directory import BookieDirectory
from metadata.repair.lifecycle_store import Lifecycles
from metadata.security.acl_store import AclStore, AclView
from metadata.security.quota_store import QuotaStore, QuotaTable
from metadata.security.user_store import UserStore, UserTable
from metadata.store.child_names import ChildNames
from metadata.store.interface import MetadataStore, SessionState
from metadata.store.number_blocks import NumberBlocks
from metadata.topics.in_sync_reports import InSyncReporter, InSyncView
from metadata.topics.partition_store import PartitionStore
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic import NO_LEADER
from metadata.topics.topic_store import TopicStore
from quire.addresses import is_wildcard, join_address
from quire.options import with_options
from quire.server.admin import AdminContent, AdminServer
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog, SessionLog
from quire.server.server_options import TlsMode

PROCESS_NAME_BYTES: Final = 4
LAC_DELAY_S: Final = 1.0
"""Idle time of a partition before its writer sends the LAC to the bookies, in seconds. Consumers
get the high watermark from the leader, so only programs that read ledgers directly wait for it."""
APPEND_DEADLINE_S: Final = 600.0
"""Deadline of an append, in seconds. It is longer than any `replica.lag.time.max.ms`, so lagging
replicas leave the in-sync set before an append fails."""
NAMES_INTERVAL_S: Final = 1.0
"""Least pause between two reads of the names of the jobs of repair, and of the bookies."""
LEAVE_WAIT_S: Final = 8.0
"""Maximum time that a stopping broker waits for others to take its partitions, in seconds."""
START_WAIT_S: Final = 60.0
"""Maximum time that a starting broker waits until it knows the cluster, in seconds."""


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """Id and addresses of a running broker."""

    broker_id: int
    listeners: tuple[ListenerAddress, ...]
    admin_url: str

    @property
    def address(self) -> str:
        """Advertised address of the first listener."""
        return self.listeners[0].address


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
            configs=options.topic_configs,
            is_strict=options.strict_settings,
        ),
        creates_topics=options.auto_create_topics,
        offsets_partitions=options.offsets_topic_partitions,
        transaction_state_partitions=options.transaction_topic_partitions,
    )


def groups_config(options: BrokerOptions) -> GroupsConfig:
    """Return the configuration of group coordination for a broker with these options."""
    return with_options(GroupsConfig(), options)


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
        self.authorizer_config = options.authorizer_config
        self.acls = None if self.authorizer_config is None else AclView(store, rng)
        """Access control lists; None without an authorizer."""
        self.acl_admin = AclAdmin(AclStore(store, rng), self.acls) if self.acls else None
        self.config = control_config(options)
        self.changes = TopicChanges(
            self.view,
            self.topics,
            self.config,
            environment.wall_clock_ms,
            self.bookies.count,
            rng,
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
            **group_handlers.handlers(self.groups, self.verifier.check_offsets),
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
            options.broker_id, cluster.view, self._view_peers, options.peer_listener
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


class BrokerProcess:
    """One broker. Call `start` once, then `wait_for_failure`, and `stop` in every case."""

    def __init__(self, environment: BrokerEnvironment) -> None:
        """Use the store and the client of `environment`; the caller closes them."""
        self._environment = environment
        self._options = options = environment.options
        self._log = ServerLog(environment.now)
        self._parts = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing: str | None = "the broker is starting"
        self._listeners = parse_listeners(options.listeners)
        self._peer_listener = options.peer_listener
        self._cluster = ClusterParts(environment)
        self._coordinators = CoordinatorParts(
            environment, self._cluster, self._log_of, self._peer_listener
        )
        self._leading = LeadingParts(environment, self._cluster, self._coordinators.by_topic())
        self._registrar: BrokerRegistrar | None = None
        self._registration: BrokerRegistration | None = None

    async def start(self) -> BrokerAddresses:
        """Start serving; return the broker's id and addresses.

        Raises CannotListenError or MetadataError; the message says what to do.
        """
        self._parts.callback(self._environment.store.on_session(SessionLog(self._log)))
        services = self._make_services(await self._cluster_id())
        self._parts.push_async_callback(services.close)
        tls = ServedTls("broker", self._options, self._log)
        server = BrokerServer(services.context)
        self._parts.push_async_callback(server.close)
        self._parts.callback(services.answer_waiting)
        taken = await server.bind(self._listeners, await self._access(tls, services))
        self._watch_files(tls)
        advertised = advertise(taken, parse_listeners(self._options.advertised_listeners))
        admin_url = await self._start_admin(services, advertised, tls)
        await self._register(advertised, admin_url)
        await asyncio.gather(self._follow(), _warm_up())
        await server.serve()
        self._missing = None
        return BrokerAddresses(self._options.broker_id, advertised, admin_url)

    async def wait_for_failure(self) -> None:
        """Wait for ever; raise the failure after which the broker must not serve."""
        await self._failed

    async def stop(self) -> None:
        """Hand over the partitions, finish requests in progress, and close every part."""
        self._missing = "the broker is closing"
        self._failed.cancel()
        await self._leave()
        await self._parts.aclose()

    # -- starting

    def _log_of(self, topic: str, partition: int) -> TopicLog:
        return self._leading.manager.log_of(topic, partition)

    async def _cluster_id(self) -> str:
        instance = await require_cluster(self._environment.store)
        return urlsafe_b64encode(instance).decode().rstrip("=")

    def _make_services(self, cluster_id: str) -> BrokerServices:
        environment, view = self._environment, self._cluster.view
        parts = ServiceParts(
            self._options.broker_id,
            self._leading.manager,
            view,
            self._coordinators.verifier,
            {
                **self._coordinators.handlers,
                **self._leading.handlers(cluster_id),
                **self._user_handlers().handlers(),
                **self._quota_handlers().handlers(),
            },
            self._peer_listener,
            self._make_authorizer(),
            self._cluster.quotas.set,
        )
        limits = with_options(BrokerLimits(), self._options)
        return BrokerServices(parts, limits, self._log, environment.rng, environment.now)

    def _make_authorizer(self) -> Authorizer | None:
        acls, config = self._cluster.acls, self._cluster.authorizer_config
        if acls is None or config is None:
            return None
        authorizer = Authorizer(acls, config, self._log.audit)
        self._parts.callback(authorizer.close)
        return authorizer

    async def _access(
        self, tls: ServedTls, services: BrokerServices
    ) -> Mapping[str, ListenerAccess]:
        """Return how each listener takes connections."""
        environment, options = self._environment, self._options
        parts = LoginParts(
            services.tasks,
            services.counters,
            self._log.audit,
            environment.now,
            environment.wall_clock_ms,
            options.connections_max_reauth_ms,
        )
        rng = environment.secret_rng or environment.rng
        logins = ServedLogins(options, self._cluster.users, parts, rng)
        self._parts.push_async_callback(logins.aclose)
        if any(protocol.uses_logins for protocol in options.protocols.values()):
            await logins.start(environment.store)
        return access_of_listeners(options.protocols, options, tls, logins)

    def _watch_files(self, tls: ServedTls) -> None:
        watching = asyncio.get_running_loop().create_task(tls.watch())
        self._parts.push_async_callback(partial(cancel_and_wait, watching))

    def _user_handlers(self) -> UserHandlers:
        users = UserStore(self._environment.store, self._environment.rng)
        return UserHandlers(users, self._cluster.users, self._log.audit)

    def _quota_handlers(self) -> QuotaHandlers:
        quotas = QuotaStore(self._environment.store, self._environment.rng)
        return QuotaHandlers(quotas, self._cluster.quotas, self._log.audit)

    async def _start_admin(
        self, services: BrokerServices, advertised: tuple[ListenerAddress, ...], tls: ServedTls
    ) -> str:
        options = self._options
        partitions = LedPartitions(
            self._leading.manager, self._leading.health, self._environment.now
        ).rows
        metrics = BrokerMetrics(
            options.broker_id, services.counters, services.context.budget, partitions
        )
        first = advertised[0]

        def identity() -> Mapping[str, object]:
            return {
                "id": options.broker_id,
                "address": first.address,
                "build": self._environment.build,
                "controller": self._cluster.view.controller_id,
                "led_partitions": self._leading.manager.led_count,
                "leaderless_partitions": self._leading.manager.leaderless_count,
                "connections": services.counters.connections_now,
            }

        routes = BrokerAdmin(partitions, self._readiness, identity).routes()
        content = AdminContent(
            "broker", metrics, self._readiness, routes, (), tls.admin_access(), (tls,)
        )
        admin = AdminServer(content, self._log)
        self._parts.push_async_callback(admin.close)
        host, port = await admin.start(options.admin_host, options.admin_port)
        scheme = "https" if options.tls_mode is TlsMode.REQUIRED else "http"
        reachable = first.host if is_wildcard(host) else host
        return f"{scheme}://{join_address(reachable, port)}"

    async def _register(self, advertised: tuple[ListenerAddress, ...], admin_url: str) -> None:
        options = self._options
        self._registration = BrokerRegistration(
            broker_id=options.broker_id,
            listeners=tuple(Listener(bind.name, bind.host, bind.port) for bind in advertised),
            admin_url=admin_url,
            rack=options.rack,
            build=self._environment.build,
            apis=tuple(
                ApiVersions(key.shown, served.min, served.max) for key, served in ADVERTISED.items()
            ),
        )
        self._registrar = BrokerRegistrar(
            self._environment.store,
            self._registration,
            self._environment.rng,
            on_lost=self._lost_name,
        )
        self._parts.push_async_callback(self._registrar.aclose)
        await self._registrar.start()

    async def _follow(self) -> None:
        self._parts.push_async_callback(self._cluster.aclose)
        await self._cluster.start()
        self._parts.push_async_callback(self._coordinators.aclose)
        self._coordinators.start()
        self._parts.push_async_callback(self._leading.aclose)
        self._leading.start()
        view = self._cluster.view
        known, event = asyncio.Event(), view.on_event

        def check() -> None:
            # Some clients request the controller first, and fail if there is none.
            is_led = view.controller_id != NO_LEADER
            if is_led and view.is_complete and self._options.broker_id in view.brokers:
                known.set()

        cancel = event(lambda _: check())
        check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_S):
                await known.wait()
        cancel()

    # -- stopping, and what goes wrong

    async def _leave(self) -> None:
        """Announce that this broker leaves; wait until others, if any, lead its partitions."""
        manager, view = self._leading.manager, self._cluster.view
        if self._registrar is None or self._registration is None or not self._has_successors():
            return
        self._registrar.update(replace(self._registration, is_leaving=True))
        waiting = asyncio.ensure_future(manager.wait_until_empty(LEAVE_WAIT_S))

        def check() -> None:
            if not self._has_successors():
                waiting.cancel()

        cancel = view.on_event(lambda _: check())
        (is_empty,) = await asyncio.gather(waiting, return_exceptions=True)
        cancel()
        if is_empty is not True:
            self._log.warning("stopping while still leading partitions", count=manager.led_count)

    def _has_successors(self) -> bool:
        return any(other != self._options.broker_id for other in self._cluster.view.may_lead())

    def _lost_name(self, error: NameHeldError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _readiness(self) -> str | None:
        if self._missing is None and self._cluster.view.lease.has_lapsed:
            return "the session with the metadata service has lapsed"
        if self._missing is None and self._environment.store.session_state is SessionState.EXPIRED:
            return "the session with the metadata service has expired"
        return self._missing


async def _warm_up() -> None:
    """Compile every codec, so that no client's first request waits for it."""
    for _ in warm_up():
        await asyncio.sleep(0)
