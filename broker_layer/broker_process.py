"""Puts one broker together from its store, its ledger client and its options, and takes it apart in
order.

Leaves making the real store, clock and rng to `main`; a simulation gives others.

Invariants: a broker listens to nobody before it knows every topic; it is registered before it is
asked to lead; a stopping broker gives its partitions away before it closes its connections.

Source: topics design, "What a takeover does"; style section 1.4.
"""

import asyncio
import contextlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final

from broker_layer.broker_parts import (
    BrokerEnvironment,
    ClusterParts,
    CoordinatorParts,
    LeadingParts,
)
from broker_layer.control.partition_table import LedPartitions
from broker_layer.kafka.messages import warm_up
from broker_layer.log.topic_log import TopicLog
from broker_layer.options import BrokerOptions, listener_for_brokers
from broker_layer.server.admin_http import BrokerAdmin
from broker_layer.server.broker_services import BrokerServices, Served
from broker_layer.server.config import BrokerLimits
from broker_layer.server.connections.listeners import ListenerAddress, advertise, parse_listeners
from broker_layer.server.connections.server import BrokerServer
from broker_layer.server.connections.server_errors import BrokerError, CannotListenError
from broker_layer.server.metrics import BrokerMetrics
from metadata.brokers.broker_registry import BrokerRegistrar, BrokerRegistration, Listener
from metadata.errors import NameHeldError
from metadata.registry.cookies import cluster_instance
from metadata.store.interface import SessionState
from metadata.topics.topic import NO_LEADER
from serving.admin import Administered, AdminServer
from serving.server_log import ServerLog

LEAVE_WAIT_S: Final = 8.0
"""How long a stopping broker waits for others to take its partitions."""
START_WAIT_S: Final = 60.0
"""How long a starting broker waits until it knows the cluster."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a broker that is up can be reached."""

    broker_id: int
    listeners: tuple[ListenerAddress, ...]
    admin_url: str

    @property
    def address(self) -> str:
        """The first listener's address, as clients are told."""
        first = self.listeners[0]
        return f"{first.host}:{first.port}"


class BrokerProcess:
    """One broker. `start` once, then `wait_for_failure`, and `stop` whatever happened."""

    def __init__(self, environment: BrokerEnvironment) -> None:
        """Take a store and a client, which stay the caller's to close."""
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
            environment, self._cluster.view, self._log_of, self._peer_listener
        )
        self._leading = LeadingParts(environment, self._cluster, self._coordinators.by_topic())
        self._registrar: BrokerRegistrar | None = None
        self._registration: BrokerRegistration | None = None

    async def start(self) -> Serving:
        """Serve; return who and where. Raises BrokerError, MetadataError, saying what to do."""
        services = self._make_services(await self._cluster_id())
        self._parts.push_async_callback(services.close)
        server = BrokerServer(services.context)
        self._parts.push_async_callback(server.close)
        self._parts.callback(services.answer_waiting)
        taken = await server.bind(self._listeners)
        told = advertise(taken, parse_listeners(self._options.advertised_listeners))
        admin_url = await self._start_admin(services, told)
        await self._register(told, admin_url)
        await asyncio.gather(self._follow(), _warm_up())
        await server.serve()
        self._missing = None
        self._log.info("broker serves", broker=self._options.broker_id, listeners=str(told))
        return Serving(self._options.broker_id, told, admin_url)

    async def wait_for_failure(self) -> None:
        """Return never; raise what makes serving on wrong."""
        await self._failed

    async def stop(self) -> None:
        """Give the partitions away, finish what is under way, and close every part."""
        self._missing = "the broker is closing"
        self._failed.cancel()
        await self._leave()
        await self._parts.aclose()

    # -- starting

    def _log_of(self, topic: str, partition: int) -> TopicLog:
        return self._leading.manager.log_of(topic, partition)

    async def _cluster_id(self) -> str:
        instance = await cluster_instance(self._environment.store, self._environment.rng)
        return urlsafe_b64encode(instance).decode().rstrip("=")

    def _make_services(self, cluster_id: str) -> BrokerServices:
        environment, view = self._environment, self._cluster.view
        served = Served(
            self._options.broker_id,
            self._leading.manager,
            view,
            self._coordinators.verifier,
            {**self._coordinators.handlers, **self._leading.handlers(cluster_id)},
            self._peer_listener,
        )
        limits = limits_of(self._options)
        return BrokerServices(served, limits, self._log, environment.rng, environment.now)

    async def _start_admin(
        self, services: BrokerServices, told: tuple[ListenerAddress, ...]
    ) -> str:
        options = self._options
        partitions = LedPartitions(self._leading.manager, self._environment.now)
        metrics = BrokerMetrics(
            options.broker_id, services.counters, services.context.budget, partitions
        )
        first = told[0]

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
        admin = AdminServer(
            Administered("broker", metrics, self._readiness, routes, BrokerError), self._log
        )
        self._parts.push_async_callback(admin.close)
        try:
            host, port = await admin.start(options.admin_host, options.admin_port)
        except OSError as error:
            raise CannotListenError(
                "the admin server", options.admin_host, options.admin_port, str(error)
            ) from error
        return f"http://{host}:{port}"

    async def _register(self, told: tuple[ListenerAddress, ...], admin_url: str) -> None:
        options = self._options
        self._registration = BrokerRegistration(
            broker_id=options.broker_id,
            listeners=tuple(Listener(each.name, each.host, each.port) for each in told),
            admin_url=admin_url,
            rack=options.rack,
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

        def look() -> None:
            # Clients that are told of no controller fail: some ask for it before anything else.
            is_led = view.controller_id != NO_LEADER
            if is_led and view.is_complete and self._options.broker_id in view.brokers:
                known.set()

        cancel = event(lambda _: look())
        look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_S):
                await known.wait()
        cancel()

    # -- stopping, and what goes wrong

    async def _leave(self) -> None:
        """Say that this broker leaves, and wait until others lead what it led, if there are any."""
        manager, view = self._leading.manager, self._cluster.view
        if self._registrar is None or self._registration is None or not self._has_successors():
            return
        self._registrar.update(replace(self._registration, is_leaving=True))
        waiting = asyncio.ensure_future(manager.wait_until_empty(LEAVE_WAIT_S))

        def look() -> None:
            if not self._has_successors():
                waiting.cancel()

        cancel = view.on_event(lambda _: look())
        (is_empty,) = await asyncio.gather(waiting, return_exceptions=True)
        cancel()
        if is_empty is not True:
            self._log.warning("partitions are left behind", count=manager.led_count)

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
    """Have every codec compiled, so that no client's first request waits for it."""
    for _ in warm_up():
        await asyncio.sleep(0)


def limits_of(options: BrokerOptions) -> BrokerLimits:
    """Return the server's bounds."""
    return BrokerLimits(
        connections_max=options.connections_max,
        frame_bytes_max=options.frame_bytes_max,
        broker_bytes_max=options.request_bytes_max,
        idle_s_max=options.idle_s_max,
        drain_timeout_s=options.drain_timeout_s,
        fetch_bytes_max=options.fetch_bytes_max,
        produce_bytes_per_s=options.produce_bytes_per_s,
        fetch_bytes_per_s=options.fetch_bytes_per_s,
    )
