"""Admin port of a server, over HTTP: health, metrics, and the routes of its caller.

Invariants: with a token or with clients' certificates, every request but those for health needs one
of the two; only requests of other methods than GET change anything. A server may name the
principals whose certificates are enough to read, and those whose certificates are enough to change.

Format: JSON; a failure is {"error": text}, with an HTTP status of 400 or above.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.registry import Collector

from quire.identity.principal import ANONYMOUS, MappingRule, principal_of
from quire.identity.tls import RefusedCertificates
from quire.server.errors import CannotListenError
from quire.server.http_listening import HttpLimits, HttpListener, http_runner
from quire.server.metrics import CONTENT_TYPE, ProcessMetrics, metrics_text
from quire.server.server_log import ServerLog
from quire.server.token_check import TokenCheck, TooManyLoginsError

BODY_BYTES_MAX: Final = 4_096
PATH_CHARACTERS_MAX: Final = 200
"""Maximum number of a path's characters in the log."""
READING: Final = ("GET", "HEAD")
"""Methods that change nothing."""
AUTHORIZATION: Final = "Authorization"
BEARER: Final = "Bearer "
HTTP_ERROR: Final = 400
"""First status that is an error."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Readiness = Callable[[], str | None]
"""Returns what is missing before clients can be served; None when the server is ready."""


HEALTH_ROUTES: Final = ("/livez", "/readyz")
"""Routes for everybody: what restarts a server has no secret."""


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """What requests to an admin port need."""

    token: str = field(default="", repr=False)
    context: SSLContext | None = None
    """Context of TLS; None without."""
    takes_certificates: bool = False
    """Whether a client's certificate is enough."""
    rules: tuple[MappingRule, ...] = ()
    """Rules for the principals of clients with certificates."""
    changers: frozenset[str] | None = None
    """Principals whose certificates are enough for requests that change something. None: those of
    all clients.
    """
    readers: frozenset[str] | None = None
    """Principals, besides `changers`, whose certificates are enough for requests that change
    nothing. None: those of all clients.
    """
    refused: RefusedCertificates = field(default_factory=RefusedCertificates)
    """Certificates of clients that are refused."""

    def admits(self, request: web.Request) -> bool:
        """Return whether a request may be served."""
        if request.path in HEALTH_ROUTES or not (self.token or self.takes_certificates):
            return True
        return self.knows_certificate(request) or self.has_token(request)

    def knows_certificate(self, request: web.Request) -> bool:
        """Return whether the certificate of a request is enough to read."""
        if not self.takes_certificates or not request.get_extra_info("peercert"):
            return False
        return self.readers is None or self.who(request) in self.readers | (
            self.changers or frozenset()
        )

    def may_change(self, request: web.Request) -> bool:
        """Return whether a request that is admitted may change something."""
        if self.changers is None or not self.takes_certificates or self.has_token(request):
            return True
        return self.who(request) in self.changers

    def who(self, request: web.Request) -> str:
        """Return what is known of the client, for the audit log."""
        certificate = request.get_extra_info("peercert")
        if certificate:
            return principal_of(certificate, self.rules).text
        return "admin token" if self.has_token(request) else ANONYMOUS.text

    def sends_token(self, request: web.Request) -> bool:
        """Return whether a request sends a token where one matters, right or wrong."""
        is_bearer = request.headers.get(AUTHORIZATION, "").startswith(BEARER)
        return bool(self.token) and is_bearer and request.path not in HEALTH_ROUTES

    def has_token(self, request: web.Request) -> bool:
        """Return whether a request has the token."""
        # Bytes that are not UTF-8 are in the header as lone surrogates.
        given = request.headers.get(AUTHORIZATION, "").encode(errors="surrogateescape")
        wanted = f"{BEARER}{self.token}".encode()
        return bool(self.token) and hmac.compare_digest(given, wanted)


OPEN: Final = AdminAccess()


@dataclass(frozen=True, slots=True)
class AdminContent:
    """Content of one server's admin port."""

    kind: str
    """Kind of the server, for messages: "bookie", "broker"."""

    metrics: Collector
    readiness: Readiness
    routes: Sequence[web.RouteDef]
    """Routes besides health and metrics. A handler refuses by raising `web.HTTPException`."""

    failures: tuple[type[Exception], ...] = ()
    """Exceptions that a handler may raise when the server cannot do a request now."""

    access: AdminAccess = OPEN
    more_metrics: Sequence[Collector] = ()


class AdminServer:
    """Admin port of one server."""

    def __init__(self, administered: AdminContent, log: ServerLog) -> None:
        self._administered = administered
        self._log = log
        self._process = ProcessMetrics(administered.kind)
        self._runner: web.AppRunner | None = None
        self._listener: HttpListener | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        now = asyncio.get_running_loop().time
        tokens = TokenCheck(self._administered.access.token, now)
        application = web.Application(
            client_max_size=BODY_BYTES_MAX,
            middlewares=[_errors_as_json(self._administered, self._log, tokens)],
        )
        application.add_routes(
            [
                web.get("/livez", answer_live),
                web.get("/readyz", readiness_handler(self._administered.readiness)),
                web.get("/metrics", self._metrics),
                *self._administered.routes,
            ]
        )
        self._runner = http_runner(application, self._log)
        await self._runner.setup()
        access, limits = self._administered.access, HttpLimits()
        self._listener = HttpListener(
            self._runner, access.context, self._log, limits, access.refused
        )
        try:
            return await self._listener.open(host, port)
        except OSError as error:
            await self._runner.cleanup()
            raise CannotListenError("the admin server", host, port, str(error)) from error

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        administered = self._administered
        body = metrics_text(administered.metrics, self._process, *administered.more_metrics)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def answer_live(_: web.Request) -> web.Response:
    """Answer that the process is live."""
    return web.json_response({"status": "live"})


def readiness_handler(readiness: Readiness) -> Handler:
    """Return a handler that answers whether clients can be served."""

    async def answer(_: web.Request) -> web.Response:
        missing = readiness()
        if missing is not None:
            return web.json_response({"status": "not ready", "missing": missing}, status=503)
        return web.json_response({"status": "ready"})

    return answer


def _errors_as_json(administered: AdminContent, log: ServerLog, tokens: TokenCheck) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        access, act = administered.access, f"{request.method} {request.path[:PATH_CHARACTERS_MAX]}"
        peer = request.remote or "unknown"
        try:
            has_wrong = access.sends_token(request) and not tokens.is_token(_sent(request), peer)
        except TooManyLoginsError as error:
            log.audit.refused(act, who=access.who(request), peer=peer)
            return _error(429, str(error))
        admits = access.admits(request)
        if has_wrong or not admits:
            log.audit.refused(act, who=access.who(request), peer=peer)
        if not admits:
            text = "send the admin token as Authorization: Bearer TOKEN, or use a certificate"
            return _error(401, text)
        if request.method != "GET" and "Origin" in request.headers:
            return _error(403, "requests from web pages are not allowed")
        if request.method not in READING and not access.may_change(request):
            if not has_wrong:
                log.audit.refused(act, who=access.who(request), peer=peer)
            text = (
                f"{access.who(request)} may not change this server: name it in super_users, or send"
                " the admin token"
            )
            return _error(403, text)
        answer = await _answer(request, handler, administered, log)
        if request.method != "GET":
            failed = answer.status >= HTTP_ERROR
            log.audit.done(act, who=access.who(request), peer=peer, failed=failed)
        return answer

    return middleware


def _sent(request: web.Request) -> str:
    return request.headers[AUTHORIZATION].removeprefix(BEARER)


async def _answer(
    request: web.Request, handler: Handler, administered: AdminContent, log: ServerLog
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _error(error.status, error.reason)
    except administered.failures as error:
        return _error(503, str(error))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - an error of one request affects no other
        log.failure("admin request failed", error, path=request.path[:PATH_CHARACTERS_MAX])
        text = f"the {administered.kind} failed to execute this request; its log has the error"
        return _error(500, text)


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
