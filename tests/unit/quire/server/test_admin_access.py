"""Who may use an admin port, and what of it is in the audit log."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.registry import Collector

from quire.identity.client_file import read_client_file
from quire.identity.errors import SecretError
from quire.local.secure_directory import SecureDirectory
from quire.server.admin import AdminAccess, AdminContent, AdminServer
from quire.server.overriding import override
from quire.server.served_tls import ServedTls
from quire.server.server_log import (
    LINES_PER_EVENT_MAX,
    LINES_PER_PEER_MAX,
    JsonFormatter,
    ServerLog,
)
from quire.server.server_options import SecurityOptions, TlsMode
from quire.server.token_check import LOGINS_OF_ADDRESS_MAX

TOKEN = "a secret of 24 characters"


class NoMetrics(Collector):
    @override
    def collect(self) -> Iterator[Metric]:
        return iter(())


async def act(request: web.Request) -> web.Response:
    if "refuse" in request.query:
        raise web.HTTPBadRequest(reason="no such thing")
    return web.json_response({})


def clock() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def served(access: AdminAccess) -> AsyncIterator[str]:
    routes = (web.post("/act", act), web.get("/look", act))
    content = AdminContent("thing", NoMetrics(), lambda: None, routes, (), access)
    server = AdminServer(content, ServerLog(clock))
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield f"{'https' if access.context else 'http'}://localhost:{port}"
    finally:
        await server.close()


async def status_of(
    method: str, url: str, *, token: str = "", context: SSLContext | None = None
) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session:
        ssl = context if context is not None else True
        async with session.request(method, url, headers=headers, ssl=ssl) as answer:
            return answer.status


def audited(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    caplog.clear()
    found = [line for line in lines if line["event"] == "audit"]
    return [(each["act"], each["result"], each["who"]) for each in found]


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quire.server.audit")


async def test_without_a_proof_to_ask_for_everyone_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(AdminAccess()) as url:
        assert await status_of("GET", f"{url}/look") == 200
        assert await status_of("POST", f"{url}/act") == 200
    assert audited(caplog) == [("POST /act", "done", "User:ANONYMOUS")]


async def test_a_token_is_needed_but_for_health(caplog: pytest.LogCaptureFixture) -> None:
    async with served(AdminAccess("secret")) as url:
        assert await status_of("GET", f"{url}/livez") == 200
        assert await status_of("GET", f"{url}/readyz") == 200
        for wrong in ("", "secre", "secret2", "SECRET"):
            for method, path in (("GET", "look"), ("POST", "act"), ("GET", "metrics")):
                assert await status_of(method, f"{url}/{path}", token=wrong) == 401
        refused = audited(caplog)
        assert ("GET /look", "refused", "User:ANONYMOUS") in refused
        assert not any("secre" in str(each) for each in refused)
        assert await status_of("GET", f"{url}/look", token="secret") == 200
        assert await status_of("POST", f"{url}/act", token="secret") == 200
        assert await status_of("POST", f"{url}/act?refuse=1", token="secret") == 400
    assert audited(caplog) == [
        ("POST /act", "done", "admin token"),
        ("POST /act", "failed", "admin token"),
    ]
    assert "secret" not in repr(AdminAccess("secret"))


async def test_a_certificate_is_enough_and_names_its_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill(clients=("ann",))
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(TOKEN)
    options = SecurityOptions(
        tls=TlsMode.REQUIRED,
        **directory.certificate_options("bookie"),  # type: ignore[arg-type]
        tls_principal_rules="RULE:^CN=(.*?),.*$/$1/",
        admin_token_file=str(tmp_path / "token"),
    )
    access = ServedTls("thing", options, ServerLog(clock)).admin_access()
    own = read_client_file(directory.client_file("ann")).context
    (tmp_path / "trusting.toml").write_text('[tls]\nauthorities = "ca.pem"\n')
    trusting = read_client_file(str(tmp_path / "trusting.toml")).context
    async with served(access) as url:
        assert await status_of("GET", f"{url}/livez", context=trusting) == 200
        assert await status_of("POST", f"{url}/act", context=trusting) == 401
        assert await status_of("POST", f"{url}/act", context=trusting, token=TOKEN) == 200
        assert await status_of("POST", f"{url}/act", context=own) == 200
    assert audited(caplog) == [
        ("POST /act", "refused", "User:ANONYMOUS"),
        ("POST /act", "done", "admin token"),
        ("POST /act", "done", "User:ann"),
    ]


async def test_only_some_principals_change_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill(clients=("ann", "bob"))
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(TOKEN)
    options = SecurityOptions(
        tls=TlsMode.REQUIRED,
        **directory.certificate_options("bookie"),  # type: ignore[arg-type]
        tls_principal_rules="RULE:^CN=(.*?),.*$/$1/",
        admin_token_file=str(tmp_path / "token"),
    )
    served_tls = ServedTls("thing", options, ServerLog(clock))
    ann, bob = (read_client_file(directory.client_file(each)).context for each in ("ann", "bob"))
    async with served(served_tls.admin_access(frozenset({"User:ann"}))) as url:
        assert await status_of("POST", f"{url}/act", context=ann) == 200
        assert await status_of("GET", f"{url}/look", context=bob) == 200
        assert await status_of("POST", f"{url}/act", context=bob) == 403
        assert await status_of("POST", f"{url}/act", context=bob, token="wrong") == 403
        assert await status_of("POST", f"{url}/act", context=bob, token=TOKEN) == 200
    async with served(served_tls.admin_access(frozenset())) as url:
        assert await status_of("POST", f"{url}/act", context=ann) == 403
    results = [(result, who) for _, result, who in audited(caplog)]
    assert results == [
        ("done", "User:ann"),
        ("refused", "User:bob"),
        ("refused", "User:bob"),
        ("done", "User:bob"),
        ("refused", "User:ann"),
    ]


async def test_what_is_not_http_is_logged_without_its_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = (
        b"GET /look HTTP/1.1\r\nAuthorization\0: Bearer Geheim\r\n\r\n",
        b"Geheim Geheim Geheim\r\n\r\n",
        b"GET /look HTTP/1.1\r\nHost: a\r\nContent-Length: Geheim\r\n\r\n",
    )
    async with served(AdminAccess("Geheim")) as url:
        for number in range(30):
            reader, writer = await asyncio.open_connection("localhost", int(url.rpartition(":")[2]))
            writer.write(requests[number % len(requests)])
            assert b" 400 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
    lines = [JsonFormatter().format(record) for record in caplog.records]
    refused = [each for each in map(json.loads, lines) if each["event"] == "HTTP request refused"]
    assert {each["kind"] for each in refused} <= {"BadHttpMessage", "BadStatusLine"}
    assert 0 < len(refused) <= LINES_PER_EVENT_MAX
    assert "Geheim" not in "".join(lines)


async def test_a_token_that_is_not_utf_8_is_refused() -> None:
    async with served(AdminAccess("right")) as url:
        reader, writer = await asyncio.open_connection("localhost", int(url.rpartition(":")[2]))
        writer.write(b"GET /look HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_wrong_tokens_are_limited_and_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with served(AdminAccess("right")) as url:
        for number in range(LOGINS_OF_ADDRESS_MAX):
            assert await status_of("GET", f"{url}/look", token=f"guess-{number}") == 401
        assert len(audited(caplog)) == LINES_PER_PEER_MAX
        assert await status_of("GET", f"{url}/look", token="right") == 429
        assert await status_of("GET", f"{url}/livez", token="wrong") == 200


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("short")
    options = SecurityOptions(admin_token_file=str(tmp_path / "token"))
    tls = ServedTls("thing", options, ServerLog(lambda: 0.0))
    with pytest.raises(SecretError, match="fewer than 16 characters"):
        tls.admin_access()
