"""Serves a bookie's administration over HTTP: health, metrics, what it holds, and a few switches.

Leaves the meaning of every number and switch to the storage. There is no authentication: it listens
on the loopback address unless told otherwise.

Format: JSON; a failure is {"error": what is wrong}, with a fitting HTTP status.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from bookie.errors import BookieError
from bookie.metrics import CONTENT_TYPE, BookieMetrics
from bookie.server_context import ServerContext
from bookie.server_errors import CannotListenError
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, EntryId, LedgerId

BODY_BYTES_MAX: Final = 4_096
PAGE_MAX: Final = 10_000
PAGE_DEFAULT: Final = 1_000
CLOSE_TIMEOUT_S: Final = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminServer:
    """The admin port of one bookie."""

    def __init__(
        self,
        context: ServerContext,
        metrics: BookieMetrics,
        readiness: Callable[[], str | None],
        identity: dict[str, str],
    ) -> None:
        """`readiness` names what is missing until clients can be served, None when nothing is."""
        self._context = context
        self._metrics = metrics
        self._readiness = readiness
        self._identity = identity
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the address taken. Raises CannotListenError."""
        application = web.Application(
            client_max_size=BODY_BYTES_MAX, middlewares=[_errors_as_json(self._context)]
        )
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_text),
                web.get("/api/v1/state", self._state),
                web.get("/api/v1/ledgers", self._ledgers),
                web.get("/api/v1/ledgers/{ledger_id}/entries", self._entries),
                web.post("/api/v1/clean", self._clean),
                web.post("/api/v1/checkpoint", self._checkpoint),
                web.post("/api/v1/read-only", self._read_only),
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

    async def _livez(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "live"})

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = self._readiness()
        if missing is not None:
            return web.json_response({"status": "not ready", "missing": missing}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics_text(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _state(self, _: web.Request) -> web.Response:
        storage = self._context.storage
        return web.json_response(
            {
                **self._identity,
                "writable": storage.is_writable,
                "ready": self._readiness() is None,
                "connections": self._context.counters.connections_now,
                "ledger_count": storage.ledger_count,
                "storage": asdict(storage.statistics()),
            }
        )

    async def _ledgers(self, request: web.Request) -> web.Response:
        after = _number(request.query.get("after"), -1, LEDGER_ID_MAX, default=-1)
        limit = _number(request.query.get("limit"), 1, PAGE_MAX, default=PAGE_DEFAULT)
        page = [each for each in self._context.storage.ledger_ids() if each > after][: limit + 1]
        answer: dict[str, object] = {"ledgers": page[:limit]}
        if len(page) > limit:
            answer["next_after"] = page[limit - 1]
        return web.json_response(answer)

    async def _entries(self, request: web.Request) -> web.Response:
        ledger_id = LedgerId(_number(request.match_info["ledger_id"], 0, LEDGER_ID_MAX))
        first = EntryId(_number(request.query.get("first"), 0, ENTRY_ID_MAX, default=0))
        limit = _number(request.query.get("limit"), 1, PAGE_MAX, default=PAGE_DEFAULT)
        found = await self._context.storage.entry_ranges(ledger_id, first, limit)
        if found.status in (Status.NO_SUCH_LEDGER, Status.DELETED):
            return _error(404, f"ledger {ledger_id} is not held here ({found.status.name.lower()})")
        return web.json_response(
            {
                "ledger_id": ledger_id,
                "status": found.status.name.lower(),
                "ranges": [list(pair) for pair in found.ranges],
                "complete": found.complete,
            }
        )

    async def _clean(self, _: web.Request) -> web.Response:
        return web.json_response({"freed_bytes": await self._context.storage.clean()})

    async def _checkpoint(self, _: web.Request) -> web.Response:
        await self._context.storage.checkpoint()
        mark = self._context.storage.statistics().checkpoint_mark
        return web.json_response({"checkpoint_mark": mark})

    async def _read_only(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            return _error(400, 'the body is not JSON: send {"read_only": true} or false')
        wanted = body.get("read_only") if isinstance(body, dict) else None
        if not isinstance(wanted, bool) or len(body) != 1:
            return _error(400, 'send {"read_only": true} or {"read_only": false}')
        self._context.storage.set_read_only(wanted)
        self._context.log.info("read-only switch", read_only=wanted)
        return web.json_response(
            {"read_only": wanted, "writable": self._context.storage.is_writable}
        )


def _errors_as_json(context: ServerContext) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method != "GET" and "Origin" in request.headers:
            return _error(403, "a web page may not do this")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except _BadNumberError as error:
            return _error(400, str(error))
        except BookieError as error:
            return _error(503, str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one request must not disturb another
            context.log.failure("admin request failed", error, path=request.path[:200])
            return _error(500, "the bookie failed to carry this out; its log says why")

    return middleware


class _BadNumberError(ValueError):
    """A number in a path or a query is malformed or out of bounds."""


def _number(text: str | None, low: int, high: int, *, default: int | None = None) -> int:
    if text is None and default is not None:
        return default
    digits = (text or "").removeprefix("-")
    # Bounded before it is read: a number of a million digits takes seconds.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))):
        raise _BadNumberError(f"not a whole number from {low} to {high}: {(text or '')[:40]!r}")
    value = int(text or "")
    if not low <= value <= high:
        raise _BadNumberError(f"not from {low} to {high}: {value}")
    return value


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
