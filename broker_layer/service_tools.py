"""Bundles what the services of requests work with.

Leaves building it to `broker_services`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_layer.config import BrokerLimits
from broker_layer.counters import BrokerCounters
from broker_layer.deadlines import Deadlines
from broker_layer.leader_hints import LeaderHints
from broker_layer.request_tasks import RequestTasks


@dataclass(frozen=True, slots=True)
class ServiceTools:
    """Bounds, counters, tasks, timers; of one broker, for one event loop."""

    limits: BrokerLimits
    counters: BrokerCounters
    tasks: RequestTasks
    deadlines: Deadlines
    hints: LeaderHints
    now: Callable[[], float]
