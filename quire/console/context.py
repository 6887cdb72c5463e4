"""What the pages of a console read, and how they answer."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from ledger_client.cluster_access import Cluster
from metadata.store.interface import SessionState
from quire.console.admin_servers import AdminServers
from quire.console.cluster_metrics import Survey
from quire.console.latency import AppendRing
from quire.console.templating import Templates
from quire.identity.client_file import ClientFile
from quire.server.server_log import ServerLog

HTML: Final = "text/html"
PAGE_S_MAX: Final = 10.0
"""Time for one page."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who a request comes from."""

    name: str
    """A principal, or what is known instead, for the audit log."""
    form_token: str = ""
    """Token of the forms in the pages for this viewer; empty if it may change nothing by them."""
    has_session: bool = False
    """Whether there is a cookie that ends with a logout."""


ANYBODY: Final = Viewer("")
"""Who has not logged in."""
VIEWER: Final = ContextVar("viewer", default=ANYBODY)
"""Who sent the request that this task serves."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the console, and what it needs."""

    method: str
    path: str
    handler: Handler
    is_open: bool = False
    """Whether it needs no login: health for what restarts a server, the login, and static files."""
    limit_s: float | None = PAGE_S_MAX
    """Time for the answer; None for a stream of events, which has a limit of its own."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events, which is no page."""
        return self.limit_s is None

    @property
    def changes(self) -> bool:
        """Whether it changes something, so that `allow_writes` and a form's token are needed."""
        return self.method not in ("GET", "HEAD")


class Pages(ABC):
    """Pages of one area of a console."""

    def __init__(self, context: "ConsoleContext") -> None:
        self._context = context

    @abstractmethod
    def routes(self) -> Sequence[Route]:
        """Return the routes."""


def see_other(address: str) -> web.Response:
    """Answer that the browser shall load another page."""
    return web.Response(status=303, headers={"Location": address})


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """Parts of a console that its pages share."""

    cluster: Cluster
    identity: ClientFile
    """What the console proves to bookies and brokers."""
    admin_servers: AdminServers
    survey: Survey
    appends: AppendRing
    """Latency of appends at the bookies, since the console started."""
    templates: Templates
    log: ServerLog
    allow_writes: bool
    wall_clock_ms: Callable[[], int]
    reports: Path | None
    """Directory with reports of benches, if there is one."""

    def page(
        self, request: web.Request, template: str, *, status: int = 200, **values: object
    ) -> web.Response:
        """Answer with a page."""
        viewer = VIEWER.get()
        shared = {
            "viewer": viewer,
            "may_write": self.allow_writes and bool(viewer.form_token),
            "metadata_address": self.cluster.address,
            "is_connected": self.is_connected,
            "now_ms": self.wall_clock_ms(),
            "path": request.path,
        }
        text = self.templates.render(template, {**shared, **values})
        return web.Response(text=text, content_type=HTML, status=status)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the metadata service."""
        return self.cluster.store.session_state is SessionState.CONNECTED

    @property
    def now_s(self) -> float:
        """Time of the event loop, in seconds."""
        return asyncio.get_running_loop().time()
