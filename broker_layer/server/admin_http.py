"""Tells over HTTP which partitions a broker leads; nothing can be changed so.

Leaves the port, health and metrics to `serving.admin`, and the meaning of every number to
`metrics`.
"""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

from broker_layer.server.metrics import PartitionTable
from serving.admin import Readiness, answer_live, readiness_handler


class BrokerAdmin:
    """What the admin port of one broker answers beside health and metrics."""

    def __init__(
        self,
        partitions: PartitionTable,
        readiness: Readiness,
        identity: Callable[[], Mapping[str, object]],
    ) -> None:
        self._partitions = partitions
        self._readiness = readiness
        self._identity = identity

    def routes(self) -> Sequence[web.RouteDef]:
        """Return what is answered where."""
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
        rows = [dict(each.as_json()) for each in self._partitions.rows()]
        return web.json_response({"partitions": rows})
