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
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from broker_layer.broker_parts import (
    BrokerEnvironment,
    ClusterParts,
    CoordinatorParts,
    LeadingParts,
)
from broker_layer.control.partition_table import LedPartitions
from broker_layer.kafka.messages import warm_up
from broker_layer.kafka.versions import ADVERTISED
from broker_layer.log.topic_log import TopicLog
from broker_layer.options import listener_for_brokers
from broker_layer.security.authorizer import Authorizer
from broker_layer.security.quota_handlers import QuotaHandlers
from broker_layer.security.user_handlers import UserHandlers
from broker_layer.server.access.listener_access import ListenerAccess
from broker_layer.server.access.logins import LoginParts
from broker_layer.server.access.served_logins import ServedLogins, access_of_listeners
from broker_layer.server.admin_http import BrokerAdmin
from broker_layer.server.broker_services import BrokerServices, ServiceParts
from broker_layer.server.config import BrokerLimits
from broker_layer.server.connections.listeners import ListenerAddress, advertise, parse_listeners
from broker_layer.server.connections.server import BrokerServer
from broker_layer.server.metrics import BrokerMetrics
from metadata.brokers.broker_registration import ApiVersions
from metadata.brokers.broker_registry import BrokerRegistrar, BrokerRegistration, Listener
from metadata.cancelling import cancel_and_wait
from metadata.errors import NameHeldError
from metadata.registry.cluster import require_cluster
from metadata.security.quota_store import QuotaStore
from metadata.security.user_store import UserStore
from metadata.store.interface import SessionState
from metadata.topics.topic import NO_LEADER
from quire.server.admin import AdminContent, AdminServer
from quire.server.option_reading import with_options
from quire.server.security_options import TlsMode, is_wildcard
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog

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
        first = self.listeners[0]
        return f"{first.host}:{first.port}"


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
        self._peer_listener = listener_for_brokers(options)
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
        self._log.info("broker serves", broker=self._options.broker_id, listeners=str(advertised))
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
        if any(each.uses_logins for each in options.protocols.values()):
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
                "address": f"{first.host}:{first.port}",
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
        return f"{scheme}://{first.host if is_wildcard(host) else host}:{port}"

    async def _register(self, advertised: tuple[ListenerAddress, ...], admin_url: str) -> None:
        options = self._options
        self._registration = BrokerRegistration(
            broker_id=options.broker_id,
            listeners=tuple(Listener(each.name, each.host, each.port) for each in advertised),
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
        return any(each != self._options.broker_id for each in self._cluster.view.may_lead())

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
