"""One console: its parts, its routes and its port."""

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiohttp import web

from ledger_client.cluster_access import Cluster, wall_clock_ms
from metadata.cancelling import cancel_and_wait
from metadata.store.interface import SessionState
from quire.addresses import join_address
from quire.console.admin_servers import AdminServers
from quire.console.cluster_metrics import Survey, read_cluster_metrics
from quire.console.context import ConsoleContext, Handler, Pages, Route
from quire.console.guard import TOKEN_BYTES, Guard, LoginPages, Sessions
from quire.console.latency import AppendPings
from quire.console.options import ConsoleOptions
from quire.console.pages.bookie_page import BookiePages
from quire.console.pages.chains_page import ChainPages
from quire.console.pages.cluster_page import ClusterPages
from quire.console.pages.groups_page import GroupPages
from quire.console.pages.ledger_page import LedgerListPages, LedgerPages, LedgerTailPages
from quire.console.pages.messages_page import LiveMessages, MessagePages
from quire.console.pages.repair_page import RepairPages
from quire.console.pages.reports_page import ReportPages
from quire.console.pages.topics_page import TopicPages
from quire.console.pages.transactions_page import TransactionPages
from quire.console.templating import Templates, load_static
from quire.identity.client_file import ClientFile
from quire.server.admin import AdminAccess, answer_live, readiness_handler
from quire.server.errors import CannotListenError
from quire.server.http_listening import HttpLimits, HttpListener, http_runner
from quire.server.metrics import CONTENT_TYPE, ProcessMetrics, metrics_text
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog
from quire.server.server_options import TlsMode

KIND: Final = "console"
BODY_BYTES_MAX: Final = 65_536
HTTP_LIMITS: Final = HttpLimits(connections_max=1_000, of_address_max=250)
"""A browser has several connections, and people may come through one proxy."""
KEEP_S: Final = 31_536_000


class ConsoleServer:
    """One console. Call `start` once, then `wait_for_failure`, and `stop` in any case."""

    def __init__(self, options: ConsoleOptions, cluster: Cluster, identity: ClientFile) -> None:
        """Use a cluster that the caller closes."""
        self._options = options
        self._cluster = cluster
        self._identity = identity
        self._log = ServerLog(self._now)
        self._process = ProcessMetrics(KIND)
        self._parts = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.token = ""
        """Token for a login that was made for this run; empty if a file has one, or none is needed.
        """

    async def start(self) -> str:
        """Start serving; return the address. Raises CannotListenError, SecurityError."""
        options = self._options
        tls = ServedTls(KIND, options, self._log)
        self._run(tls.watch())
        access = tls.admin_access(options.changers, options.viewers)
        if options.allow_writes and not (access.token or options.changers):
            self.token = secrets.token_urlsafe(TOKEN_BYTES)
            access = replace(access, token=self.token)
        survey = Survey(self._cluster, self._log, options.survey_every_s, self._now)
        self._run(survey.run())
        pings = AppendPings(self._cluster, wall_clock_ms)
        self._run(pings.run())
        static = load_static()
        context = ConsoleContext(
            self._cluster,
            self._identity,
            AdminServers(self._identity, self._now),
            survey,
            pings.ring,
            Templates(options.base_path, static),
            self._log,
            options.allow_writes,
            wall_clock_ms,
            Path(options.reports) if options.reports else None,
        )
        sessions = Sessions(access.token, self._now)
        guard = Guard(context, sessions, access, options.host, options.names, options.base_path)
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.on_response_prepare.append(guard.add_headers)
        for route in [
            *routes(context, guard),
            Route("GET", "/metrics", self._metrics(survey, tls)),
            Route("GET", "/livez", answer_live, is_open=True),
            Route("GET", "/readyz", readiness_handler(self._readiness), is_open=True),
        ]:
            add = application.router.add_route
            add(route.method, options.base_path + route.path, guard.wrap(route))
        return await self._listen(application, access)

    async def wait_for_failure(self) -> None:
        """Wait for a failure that must stop the console, and raise it; never return."""
        await self._failed

    async def stop(self) -> None:
        """Close every part."""
        self._failed.cancel()
        await self._parts.aclose()

    async def _listen(self, application: web.Application, access: AdminAccess) -> str:
        options = self._options
        runner = http_runner(application, self._log)
        await runner.setup()
        self._parts.push_async_callback(runner.cleanup)
        listener = HttpListener(runner, access.context, self._log, HTTP_LIMITS, access.refused)
        self._parts.callback(listener.close)
        try:
            _, port = await listener.open(options.host, options.port)
        except OSError as error:
            name = "the console"
            raise CannotListenError(name, options.host, options.port, str(error)) from error
        scheme = "https" if options.tls_mode is TlsMode.REQUIRED else "http"
        return f"{scheme}://{join_address(options.host, port)}{options.base_path}/"

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._note_end)
        self._parts.push_async_callback(cancel_and_wait, task)

    def _metrics(self, survey: Survey, tls: ServedTls) -> Handler:
        async def answer(_: web.Request) -> web.Response:
            cluster = await read_cluster_metrics(self._cluster, survey, self._now())
            body = metrics_text(self._process, tls, cluster)
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

        return answer

    def _readiness(self) -> str | None:
        if self._cluster.store.session_state is not SessionState.CONNECTED:
            return "there is no connection to the metadata service"
        return None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)


PAGES: Final[Sequence[type[Pages]]] = (
    ClusterPages,
    LedgerListPages,
    LedgerPages,
    LedgerTailPages,
    ChainPages,
    RepairPages,
    BookiePages,
    TopicPages,
    MessagePages,
    LiveMessages,
    GroupPages,
    TransactionPages,
    ReportPages,
)


def routes(context: ConsoleContext, guard: Guard) -> Sequence[Route]:
    """Return every route of the pages; the last one answers what is not found."""
    return (
        *(route for pages in PAGES for route in pages(context).routes()),
        *LoginPages(context, guard).routes(),
        *_static_routes(),
        Route("GET", "/{rest:.*}", _not_found),
    )


def _static_routes() -> list[Route]:
    files = load_static()

    async def answer(request: web.Request) -> web.Response:
        file = files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound(text="there is no such file")
        headers = {"Cache-Control": f"public, max-age={KEEP_S}, immutable"}
        charset = "utf-8"
        return web.Response(
            body=file.data, content_type=file.content_type, charset=charset, headers=headers
        )

    return [Route("GET", "/static/{name}", answer, is_open=True)]


async def _not_found(_: web.Request) -> web.Response:
    raise web.HTTPNotFound(text="use one of the links above")
