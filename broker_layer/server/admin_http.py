"""Read-only HTTP API of a broker: its state and the partitions that it leads.

Leaves the port and the metrics to `quire.server.admin`, and the rows of partitions to
`control.partition_table`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from broker_layer.server.metrics import LedPartition
from quire.server.admin import Readiness, answer_live, readiness_handler


@dataclass(eq=False, repr=False)
class BrokerAdmin:
    """The routes of one broker's admin port, in addition to metrics."""

    _partitions: Callable[[], Sequence[LedPartition]]
    _readiness: Readiness
    _identity: Callable[[], Mapping[str, object]]

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes and their handlers."""
        return (
            web.get("/health", answer_live),
            web.get("/ready", readiness_handler(self._readiness)),
            web.get("/partitions", self._partition_list),
            web.get("/api/v1/state", self._state),
            web.get("/api/v1/partitions", self._partition_list),
        )

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response({**self._identity(), "ready": self._readiness() is None})

    async def _partition_list(self, _: web.Request) -> web.Response:
        rows = [dict(each.as_json()) for each in self._partitions()]
        return web.json_response({"partitions": rows})
