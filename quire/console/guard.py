"""What each request needs before a page serves it, headers of answers, and logins."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from ledger_client.errors import LedgerError
from metadata.errors import MetadataError
from quire.console.access import HEADERS, is_known_host, is_own_origin, is_own_path
from quire.console.context import (
    ANYBODY,
    PAGE_S_MAX,
    VIEWER,
    ConsoleContext,
    Handler,
    Route,
    Viewer,
    see_other,
)
from quire.errors import CommandError, ExitCode
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError
from quire.server.admin import AUTHORIZATION, BEARER, AdminAccess
from quire.server.token_check import TokenCheck, TooManyLoginsError

AWAY_S_MAX: Final = 2.0
"""Time for one page while there is no connection to the metadata service."""
COOKIE: Final = "quire_session"
TOKEN_NAME: Final = "admin token"
"""Who sends the token itself, in pages and in the audit log."""
FORM_TOKEN_FIELD: Final = "form_token"
FORM_TOKEN_HEADER: Final = "X-Form-Token"
PATH_CHARACTERS_MAX: Final = 200
LOGIN_PATH: Final = "/login"
HTTP_ERROR: Final = 400
FAILURES: Final = (MetadataError, LedgerError, AdminApiError, SecurityError, CommandError)
"""Failures of the cluster, or of what a person asked for: the page says what to do."""
STATUSES: Final[Mapping[ExitCode, int]] = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_FOUND: 404,
    ExitCode.REFUSED: 409,
}
"""Statuses of refused requests; other failures of commands are those of the cluster."""
TITLES: Final[Mapping[int, str]] = {
    400: "This request cannot be understood",
    401: "Log in first",
    403: "This is not allowed",
    404: "There is no such page",
    405: "This page cannot be used this way",
    409: "This cannot be done now",
    413: "This request is too large",
    421: "This console does not know its name",
    429: "Too much at once",
    500: "The console failed",
    503: "The cluster did not answer",
}


SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
TOKEN_BYTES: Final = 32
_FORM_KEY: Final = b"form:"


@dataclass(frozen=True, slots=True)
class Session:
    """One login."""

    name: str
    """Who logged in, for the audit log."""
    ends_s: float


class Sessions:
    """Sessions of one console."""

    def __init__(self, token: str, now: Callable[[], float]) -> None:
        self._check = TokenCheck(token, now)
        self._now = now
        self._key = secrets.token_bytes(TOKEN_BYTES)
        self._by_id: dict[str, Session] = {}

    def is_token(self, token: str, address: str) -> bool:
        """Return whether a client of an address sends the token. Raises TooManyLoginsError."""
        return self._check.is_token(token, address)

    def log_in(self, token: str, address: str) -> str | None:
        """Return the id of a new session; None if the token is wrong. Raises TooManyLoginsError."""
        if not self.is_token(token, address):
            return None
        now_s = self._now()
        while len(self._by_id) >= SESSIONS_MAX:
            del self._by_id[next(iter(self._by_id))]
        session_id = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_id[session_id] = Session("console token", now_s + SESSION_S)
        return session_id

    def get(self, session_id: str) -> Session | None:
        """Return a session; None if there is none, or it has ended."""
        session = self._by_id.get(session_id)
        if session is not None and session.ends_s <= self._now():
            del self._by_id[session_id]
            return None
        return session

    def log_out(self, session_id: str) -> None:
        """End a session."""
        self._by_id.pop(session_id, None)

    def form_token(self, holder: str) -> str:
        """Return the token of all forms of one session, or of one principal with a certificate."""
        return hmac.new(self._key, _FORM_KEY + holder.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, holder: str, given: str) -> bool:
        """Return whether a form has the token of its holder."""
        return hmac.compare_digest(self.form_token(holder).encode(), given.encode())


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks of the requests of one console.

    Only a route that `context.Route` declares as open is served without a login where one is
    needed; only a request with a login, from a page of this console, with the form's token, changes
    anything, and only if the console allows it; each change is in the audit log; one request takes
    at most the time of its route, or AWAY_S_MAX without the metadata service, and its failure
    affects no other. A session ends SESSION_S after its login, and when the console stops; at most
    SESSIONS_MAX exist, the oldest one ends first.
    """

    context: ConsoleContext
    sessions: Sessions
    access: AdminAccess
    host: str
    """The address on which the console listens."""
    names: tuple[str, ...]
    """Other names by which browsers reach it."""
    base_path: str

    @property
    def needs_login(self) -> bool:
        """Whether pages need a login, a certificate or the token."""
        return bool(self.access.token) or self.access.takes_certificates

    def wrap(self, route: Route) -> Handler:
        """Return the handler that checks a request before the route's own serves it."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._checked(route, request)

        return handle

    async def add_headers(self, _: web.Request, answer: web.StreamResponse) -> None:
        """Add the headers of each answer, before it is sent."""
        answer.headers.update(HEADERS)
        answer.headers.setdefault("Cache-Control", "no-store")
        if self.access.context is not None:
            answer.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def _checked(self, route: Route, request: web.Request) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not is_known_host(host, self.host, self.names):
            text = "a browser reached it by another name: start it with --host-names NAME"
            return self.failure(request, 421, text)
        try:
            viewer = self._viewer(request)
        except TooManyLoginsError as error:
            return self.failure(request, 429, str(error))
        if viewer is None and not route.is_open:
            return self._ask_to_log_in(route, request)
        VIEWER.set(viewer or ANYBODY)
        if not route.changes:
            return await self._serve(route, request)
        if not is_own_origin(request.headers.get("Origin"), host):
            return self._refuse(request, "the request comes from a page of another site")
        if not route.is_open:
            refusal = await self._why_not_changed(request, VIEWER.get())
            if refusal:
                return self._refuse(request, refusal)
        answer = await self._serve(route, request)
        self.context.log.audit.done(
            _act(request),
            who=VIEWER.get().name or "unknown",
            peer=request.remote or "unknown",
            failed=answer.status >= HTTP_ERROR,
        )
        return answer

    def _viewer(self, request: web.Request) -> Viewer | None:
        """Return who sends a request; None if a login is needed and missing. Raises
        TooManyLoginsError.
        """
        session_id = request.cookies.get(COOKIE, "")
        session = self.sessions.get(session_id)
        if session is not None:
            return Viewer(session.name, self.sessions.form_token(session_id), has_session=True)
        if not self.needs_login:
            return Viewer("anyone on this machine")
        given = request.headers.get(AUTHORIZATION, "")
        if given.startswith(BEARER):  # a proxy may send its own login, which is no token
            peer = request.remote or "unknown"
            if self.sessions.is_token(given.removeprefix(BEARER), peer):
                return Viewer(TOKEN_NAME)
            self.context.log.audit.refused("login", who="unknown", peer=peer)
        if not self.access.knows_certificate(request):
            return None
        name = self.access.who(request)
        may_change = self.access.may_change(request)
        return Viewer(name, self.sessions.form_token(name) if may_change else "")

    async def _why_not_changed(self, request: web.Request, viewer: Viewer) -> str:
        if not self.context.allow_writes:
            return "this console only shows: start it with --allow-writes"
        if not viewer.form_token:
            # A program that sends the token itself, which no other site can.
            if viewer.name == TOKEN_NAME:
                return ""
            return f"{viewer.name} may only read: name it in super_users, or log in with the token"
        holder = request.cookies.get(COOKIE, "") if viewer.has_session else viewer.name
        given = request.headers.get(FORM_TOKEN_HEADER) or ""
        if not given:
            given = str((await self._form(request)).get(FORM_TOKEN_FIELD, ""))
        if not self.sessions.is_form_token(holder, given):
            return "the page is too old: go back, load it again, and repeat what you did"
        return ""

    async def _form(self, request: web.Request) -> Mapping[str, object]:
        """Return the fields of a form; none of one that is too large, too slow or no form."""
        try:
            async with asyncio.timeout(PAGE_S_MAX):
                return await request.post()
        except (web.HTTPException, ValueError, TimeoutError):
            return {}

    async def _serve(self, route: Route, request: web.Request) -> web.StreamResponse:
        limit_s = route.limit_s
        if limit_s is not None and not self.context.is_connected:
            limit_s = AWAY_S_MAX
        try:
            async with asyncio.timeout(limit_s):
                return await route.handler(request)
        except web.HTTPException as error:
            return self.failure(request, error.status, error.text or error.reason)
        except UnicodeDecodeError:
            return self.failure(request, 400, "its text is not UTF-8")
        except FAILURES as error:
            return self.failure(request, _status_of(error), _text_of(error))
        except TimeoutError:
            text = f"it did not answer within {limit_s or PAGE_S_MAX:.0f} s; try again"
            return self.failure(request, 503, text)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of one request affects no other
            self.context.log.failure("console page failed", error, path=_act(request))
            return self.failure(request, 500, "its log has the error")

    def _ask_to_log_in(self, route: Route, request: web.Request) -> web.StreamResponse:
        given = request.headers.get(AUTHORIZATION, "")
        if given.startswith(BEARER):  # a program, which no login page helps
            return self.failure(
                request, 401, "the token is wrong: send the one of admin_token_file"
            )
        if route.changes or route.is_stream:
            return self.failure(request, 401, "the session has ended: log in, and try again")
        after = quote(request.path_qs, safe="/")
        return see_other(f"{self.base_path}{LOGIN_PATH}?next={after}")

    def _refuse(self, request: web.Request, text: str) -> web.Response:
        who, peer = VIEWER.get().name or "unknown", request.remote or "unknown"
        self.context.log.audit.refused(_act(request), who=who, peer=peer)
        return self.failure(request, 403, text)

    def failure(self, request: web.Request, status: int, text: str) -> web.Response:
        """Answer with a page that says what failed, and what to do next."""
        title = TITLES.get(status, "This did not work")
        return self.context.page(request, "failure.html", status=status, title=title, text=text)


def _act(request: web.Request) -> str:
    return f"{request.method} {request.path[:PATH_CHARACTERS_MAX]}"


def _status_of(error: Exception) -> int:
    """Return the status of a failure: what a person asked for is wrong, or the cluster is away."""
    return STATUSES.get(error.code, 503) if isinstance(error, CommandError) else 503


def _text_of(error: Exception) -> str:
    try_next = getattr(error, "try_next", "")
    return f"{error}; try: {try_next}" if try_next else str(error)


TOKEN_CHARACTERS_MAX: Final = 1_000


class LoginPages:
    """Login and logout."""

    def __init__(self, context: ConsoleContext, guard: Guard) -> None:
        self._context = context
        self._guard = guard

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return (
            Route("GET", LOGIN_PATH, self._show, is_open=True),
            Route("POST", LOGIN_PATH, self._log_in, is_open=True),
            Route("POST", "/logout", self._log_out, is_open=True),
        )

    async def _show(self, request: web.Request) -> web.Response:
        return self._form(request, "")

    def _form(self, request: web.Request, problem: str, status: int = 200) -> web.Response:
        after = request.query.get("next", "")
        needed = self._guard.needs_login
        return self._context.page(
            request, "login.html", status=status, problem=problem, after=after, needed=needed
        )

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        token = str(form.get("token", ""))[:TOKEN_CHARACTERS_MAX].strip()
        peer = request.remote or "unknown"
        try:
            session_id = self._guard.sessions.log_in(token, peer)
        except TooManyLoginsError as error:
            return self._guard.failure(request, 429, str(error))
        if session_id is None:
            self._context.log.audit.refused("login", who="unknown", peer=peer)
            return self._form(request, "This is not the console's token.", 403)
        after = request.query.get("next", "")
        base = self._guard.base_path
        answer = see_other(after if is_own_path(after) else f"{base}/")
        answer.set_cookie(
            COOKIE,
            session_id,
            path=f"{base}/",
            max_age=int(SESSION_S),
            httponly=True,
            samesite="Strict",
            secure=self._guard.access.context is not None,
        )
        return answer

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        # Another site cannot send this: the cookie is for this site alone.
        if VIEWER.get().has_session:
            self._guard.sessions.log_out(request.cookies.get(COOKIE, ""))
        base = self._guard.base_path
        answer = see_other(f"{base}{LOGIN_PATH}")
        answer.del_cookie(COOKIE, path=f"{base}/")
        return answer
