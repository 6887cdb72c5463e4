"""Assembly of the services that answer requests.

Leaves building the logs and coordinators to `broker_process`, and sockets to `connections.server`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from broker_layer.handlers import Handler
from broker_layer.kafka.versions import ApiKey
from broker_layer.security.audited_handlers import audited
from broker_layer.security.authorizer import Authorizer
from broker_layer.security.guards import guarded
from broker_layer.server.connections import ServerContext
from broker_layer.server.dispatch import Dispatcher
from broker_layer.server.exchange import Deadlines, RequestTasks
from broker_layer.server.fetch import FetchReader, FetchService
from broker_layer.server.fetch_sessions import FetchSessions
from broker_layer.server.offsets import OffsetService
from broker_layer.server.ports import ClusterNames, PartitionLogs, ProduceVerifier
from broker_layer.server.produce import ProduceRoom, ProduceService
from broker_layer.server.produce_verification import ProduceVerification
from broker_layer.server.quotas import ClientQuotas
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from broker_layer.server.service_tools import (
    LeaderHints,
    ServiceTools,
    UnreadableRecords,
)
from metadata.security.quota_set import QuotaSet
from quire.server.server_log import ServerLog

if TYPE_CHECKING:
    from broker_layer.server.exchange import RawHandler


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The parts of a broker that the services of requests use."""

    broker_id: int
    logs: PartitionLogs
    names: ClusterNames
    verifier: ProduceVerifier
    handlers: Mapping[int, Handler]
    """Handlers of every API that no service of this package answers."""

    peer_listener: str
    """Name of the listener that other brokers use."""

    authorizer: Authorizer | None = None
    """Decides what clients may do; None allows everything."""

    quotas: QuotaSet = field(default_factory=QuotaSet)
    """Quotas of clients that are in the metadata."""


class BrokerServices:
    """The services between frames and logs. Create it in the event loop; call `close` once."""

    def __init__(
        self,
        parts: ServiceParts,
        limits: BrokerLimits,
        log: ServerLog,
        rng: Random,
        now: Callable[[], float],
    ) -> None:
        self.counters = BrokerCounters()
        self.tasks = RequestTasks(self.counters, log)
        self._deadlines = Deadlines()
        self._room = ProduceRoom()
        hints = LeaderHints(parts.broker_id, parts.names)
        quotas = ClientQuotas(parts.quotas, limits, self.counters, now)
        tools = ServiceTools(
            limits, self.counters, self.tasks, self._deadlines, hints, now, parts.authorizer, quotas
        )
        verification = ProduceVerification(parts.logs, parts.verifier)
        self._produce = ProduceService(parts.logs, verification, self._room, tools)
        sessions = FetchSessions(
            limits.fetch_sessions_max, limits.fetch_session_partitions_max, rng
        )
        unreadable = UnreadableRecords(log)
        reader = FetchReader(parts.logs, parts.names, unreadable)
        self._fetch = FetchService(reader, sessions, tools)
        raw_handlers: dict[int, RawHandler] = {
            ApiKey.PRODUCE: self._produce.serve,
            ApiKey.FETCH: self._fetch.serve,
        }
        offsets = OffsetService(parts.logs, unreadable)
        handlers: dict[int, Handler] = {**parts.handlers, **offsets.handlers()}
        if parts.authorizer is not None:
            handlers = guarded(handlers, parts.authorizer, parts.names)
        handlers = audited(handlers, log.audit)
        dispatcher = Dispatcher(
            raw_handlers,
            handlers,
            self.tasks,
            self.counters,
            quotas,
            parts.peer_listener,
            is_guarded=parts.authorizer is not None,
        )
        self.context = ServerContext(limits, self.counters, log, now, dispatcher.serve)
        self.context.addresses.is_within_rate = quotas.addresses.admits
        self.context.note_closed = self._note_closed

    def answer_waiting(self) -> None:
        """Answer all waiting Fetches at once, because the broker is closing."""
        self._fetch.close()

    def _note_closed(self, connection_id: int) -> None:
        self._fetch.end_sessions(connection_id)
        self._produce.end_queue(connection_id)

    async def close(self) -> None:
        """Cancel all remaining requests and waits."""
        self._deadlines.close()
        await self._room.close()
        await self.tasks.close()
