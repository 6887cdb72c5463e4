"""Tools that the services of requests share.

Leaves building it to `broker_services`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_layer.server.config import BrokerLimits
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.deadlines import Deadlines
from broker_layer.server.exchange_rights import ExchangeRights
from broker_layer.server.leader_hints import LeaderHints
from broker_layer.server.quotas.client_quotas import ClientQuotas
from broker_layer.server.request_tasks import RequestTasks


@dataclass(frozen=True, slots=True)
class ServiceTools:
    """Limits, counters, tasks and timers of one broker, for one event loop."""

    limits: BrokerLimits
    counters: BrokerCounters
    tasks: RequestTasks
    deadlines: Deadlines
    hints: LeaderHints
    now: Callable[[], float]
    rights: ExchangeRights
    quotas: ClientQuotas
