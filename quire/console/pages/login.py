"""Login with the console's token, and logout.

Leaves who is logged in to `quire.console.guard`.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from quire.console.access import is_own_path
from quire.console.context import VIEWER, ConsoleContext, Route, see_other
from quire.console.guard import COOKIE, LOGIN_PATH, SESSION_S, Guard
from quire.server.token_check import TooManyLoginsError

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
