"""A certificate of the authority is no login at the console: only those of its roles are, on each
page and for each change.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar, TCPConnector

from ledger_client.cluster_access import open_cluster
from quire.console.context import Handler, Route
from quire.console.guard import Guard
from quire.console.options import ConsoleOptions
from quire.console.server import ConsoleServer
from quire.identity.client_file import NO_IDENTITY, read_client_file
from quire.identity.tls import ClientCertificates
from quire.local.secure_directory import SecureDirectory
from quire.server.server_options import TlsMode
from tests.support.quire.console import Browser, path_of
from tests.support.quire.memory_cluster import MemoryCluster

TOKEN = "secret-of-the-operators-0123456789"
APPLICATION, READER, OPERATOR = "orders", "watcher", "operator"


class World:
    """A console with TLS, its routes, and browsers with certificates."""

    def __init__(self, path: Path) -> None:
        self._directory = SecureDirectory(path)
        self._directory.fill(clients=(APPLICATION, READER, OPERATOR))
        (path / "token").touch(0o600)
        (path / "token").write_text(TOKEN)
        self.routes: list[Route] = []
        self.address = ""
        self.options = ConsoleOptions(
            metadata="zk://nowhere:1/cluster",
            port=0,
            allow_writes=True,
            tls=TlsMode.REQUIRED,
            **self._directory.certificate_options("console"),  # type: ignore[arg-type]
            tls_client_certificates=ClientCertificates.REQUESTED,
            tls_principal_rules="RULE:^CN=([^,]+),.*$/$1/",
            admin_token_file=str(path / "token"),
            super_users=f"User:{OPERATOR}",
            readers=f"User:{READER}",
        )

    @asynccontextmanager
    async def serve(self, options: ConsoleOptions) -> AsyncIterator[None]:
        async with open_cluster(options.metadata) as cluster:
            server = ConsoleServer(options, cluster, NO_IDENTITY)
            try:
                self.address = (await server.start()).replace("127.0.0.1", "localhost")
                yield
            finally:
                await server.stop()

    @asynccontextmanager
    async def browser(self, name: str) -> AsyncIterator[Browser]:
        context = read_client_file(self._directory.client_file(name)).context
        connector = TCPConnector(ssl=context)  # type: ignore[arg-type]
        jar = CookieJar(unsafe=True)
        async with ClientSession(cookie_jar=jar, connector=connector) as session:
            yield Browser(self.address, TOKEN, session)


@pytest.fixture
async def world(
    tmp_path: Path, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> World:
    made, wrap = World(tmp_path), Guard.wrap

    def wrap_noted(self: Guard, route: Route) -> Handler:
        made.routes.append(route)
        return wrap(self, route)

    monkeypatch.setattr(Guard, "wrap", wrap_noted)
    await memory_cluster.create("a")
    return made


async def test_a_certificate_without_a_role_is_no_login_on_any_page(world: World) -> None:
    async with world.serve(world.options), world.browser(APPLICATION) as browser:
        for route in world.routes:
            if route.is_open:
                continue
            path = path_of(route)
            answer = await (browser.post(path, {}) if route.changes else browser.get(path))
            assert answer.status == (401 if route.changes or route.is_stream else 303), route
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await browser.get("/metrics", **bearer)).status == 200
        assert (await browser.log_in()).status == 303
        assert (await browser.get("/repair")).form_token


async def test_a_reader_reads_and_changes_nothing(world: World) -> None:
    async with world.serve(world.options), world.browser(READER) as browser:
        page = await browser.get("/repair")
        assert (page.status, page.form_token) == (200, "")
        for route in world.routes:
            if route.changes and not route.is_open:
                answer = await browser.post(path_of(route), {"form_token": ""})
                assert answer.status == 403, route
                assert "super_users" in answer.text


async def test_an_operator_changes_with_the_token_of_the_form(world: World) -> None:
    async with world.serve(world.options), world.browser(OPERATOR) as browser:
        page = await browser.get("/repair")
        form = {"form_token": page.form_token, "minutes": "5"}
        assert (await browser.post("/repair/pause", {"minutes": "5"})).status == 403
        assert (await browser.post("/repair/pause", form)).status == 303


async def test_without_roles_only_the_token_is_a_login(world: World) -> None:
    options = replace(world.options, super_users="", readers="")
    async with world.serve(options):
        for name in (APPLICATION, READER, OPERATOR):
            async with world.browser(name) as browser:
                assert (await browser.get("/topics")).status == 303
