"""A console over a cluster that has metadata only, and a browser without scripts for it.

Leaves real browsers to `tests/console`.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import ClientSession, CookieJar

from ledger_client.cluster_access import open_cluster
from quire.console.context import Route
from quire.console.options import ConsoleOptions
from quire.console.server import ConsoleServer
from quire.identity.client_file import NO_IDENTITY

_FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]+)"')


def path_of(route: Route) -> str:
    """Return a path that a route serves."""
    return re.sub(r"\{[^}]*\}", "7", route.path)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a browser got."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def form_token(self) -> str:
        """Token of the page's forms; empty if it has none."""
        found = _FORM_TOKEN.search(self.text)
        return found.group(1) if found else ""


@dataclass(frozen=True, slots=True)
class Browser:
    """Requests to one console."""

    address: str
    token: str
    session: ClientSession

    async def get(self, path: str, **headers: str) -> Answer:
        """Load a page without following redirections."""
        return await self._send("GET", path, headers, None)

    async def post(self, path: str, form: dict[str, str], **headers: str) -> Answer:
        """Send a form."""
        return await self._send("POST", path, headers, form)

    async def send_bytes(self, path: str, body: bytes) -> Answer:
        """Send a form as it is."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._send("POST", path, headers, body)

    async def log_in(self) -> Answer:
        """Log in with the token that the console made."""
        return await self.post("/login", {"token": self.token})

    async def _send(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        form: dict[str, str] | bytes | None,
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method,
            self.address.rstrip("/") + path,
            headers=named,
            data=form,
            allow_redirects=False,
        ) as answer:
            return Answer(answer.status, await answer.text(), dict(answer.headers))


@asynccontextmanager
async def open_console(options: ConsoleOptions) -> AsyncIterator[tuple[ConsoleServer, Browser]]:
    """Serve a console on a port that the kernel gives."""
    async with open_cluster(options.metadata) as cluster:
        server = ConsoleServer(options, cluster, NO_IDENTITY)
        try:
            address = await server.start()
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
                yield server, Browser(address, server.token, session)
        finally:
            await server.stop()
