"""Serves a broker's administration over HTTP: health, metrics, and the partitions that it leads.

Leaves the meaning of every number to `metrics`. There is no authentication: it listens on the
loopback address unless told otherwise, and nothing can be changed through it.

Format: JSON; a failure is {"error": what is wrong}, with a fitting HTTP status.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from broker_layer.server.metrics import CONTENT_TYPE, BrokerMetrics, PartitionTable
from broker_layer.server.server_errors import CannotListenError
from serving.server_log import ServerLog

BODY_BYTES_MAX: Final = 4_096
CLOSE_TIMEOUT_S: Final = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminServer:
    """The admin port of one broker."""

    def __init__(
        self,
        metrics: BrokerMetrics,
        partitions: PartitionTable,
        readiness: Callable[[], str | None],
        identity: Callable[[], Mapping[str, object]],
        log: ServerLog,
    ) -> None:
        """`readiness` names what is missing until clients can be served, None when nothing is."""
        self._metrics = metrics
        self._partitions = partitions
        self._readiness = readiness
        self._identity = identity
        self._log = log
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the address taken. Raises CannotListenError."""
        application = web.Application(
            client_max_size=BODY_BYTES_MAX, middlewares=[_errors_as_json(self._log)]
        )
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/livez", self._health),
                web.get("/ready", self._ready),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._metrics_text),
                web.get("/partitions", self._partition_list),
                web.get("/api/v1/state", self._state),
                web.get("/api/v1/partitions", self._partition_list),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotListenError("the admin server", host, port, str(error)) from error
        name = self._runner.addresses[0]
        return str(name[0]), int(name[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "live"})

    async def _ready(self, _: web.Request) -> web.Response:
        missing = self._readiness()
        if missing is not None:
            return web.json_response({"status": "not ready", "missing": missing}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics_text(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response({**self._identity(), "ready": self._readiness() is None})

    async def _partition_list(self, _: web.Request) -> web.Response:
        rows = [dict(each.as_json()) for each in self._partitions.rows()]
        return web.json_response({"partitions": rows})


def _errors_as_json(log: ServerLog) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.json_response({"error": error.reason}, status=error.status)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one request must not disturb another
            log.failure("admin request failed", error, path=request.path[:200])
            text = "the broker failed to carry this out; its log says why"
            return web.json_response({"error": text}, status=500)

    return middleware
