"""Requests that a console refuses, for every route that it has."""

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from quire.console import server
from quire.console.context import ConsoleContext, Route
from quire.console.guard import COOKIE, SESSION_S, SESSIONS_MAX, Guard, Sessions
from quire.console.options import ConsoleOptions
from quire.identity.errors import SecretError
from quire.server.token_check import (
    ADDRESSES_MAX,
    LOGINS_OF_ADDRESS_MAX,
    LOGINS_PERIOD_S,
    TooManyLoginsError,
)
from tests.support.quire.console import open_console, path_of
from tests.support.quire.memory_cluster import MemoryCluster

OPEN_ROUTES = {
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/static/{name}"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
}
"""Routes that need no login. A new one must be added here on purpose."""
ADDRESS = "zk://nowhere:1/cluster"
READ_ONLY = ConsoleOptions(metadata=ADDRESS, port=0)
WRITES = ConsoleOptions(metadata=ADDRESS, port=0, allow_writes=True)


@pytest.fixture
def all_routes(monkeypatch: pytest.MonkeyPatch) -> list[Route]:
    """Return the routes of the console that is started next."""
    found: list[Route] = []
    wrap = Guard.wrap

    def wrap_noted(self: Guard, route: Route) -> object:
        found.append(route)
        return wrap(self, route)

    monkeypatch.setattr(Guard, "wrap", wrap_noted)
    return found


async def test_every_route_but_the_open_ones_needs_a_login(
    memory_cluster: MemoryCluster, all_routes: list[Route]
) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        assert {(each.method, each.path) for each in all_routes if each.is_open} == OPEN_ROUTES
        for route in all_routes:
            if route.is_open:
                continue
            path = path_of(route)
            answer = await (browser.post(path, {}) if route.changes else browser.get(path))
            wanted = 401 if route.changes or route.is_stream else 303
            assert answer.status == wanted, route
            assert "Set-Cookie" not in answer.headers
            if wanted == 303:
                assert answer.headers["Location"].startswith("/login?next=")


async def test_every_route_that_changes_needs_the_token_of_its_form(
    memory_cluster: MemoryCluster, all_routes: list[Route]
) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        assert (await browser.log_in()).status == 303
        for route in all_routes:
            if route.changes and not route.is_open:
                answer = await browser.post(path_of(route), {"form_token": "0" * 64})
                assert answer.status == 403, route


async def test_every_route_that_changes_is_refused_without_writes(
    memory_cluster: MemoryCluster, all_routes: list[Route]
) -> None:
    await memory_cluster.create("a")
    async with open_console(READ_ONLY) as (_, browser):
        for route in all_routes:
            if route.changes and not route.is_open:
                answer = await browser.post(path_of(route), {})
                assert answer.status == 403, route
                assert "--allow-writes" in answer.text


async def test_a_page_of_another_site_cannot_read_or_change(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        await browser.log_in()
        assert (await browser.get("/", Host="evil.example")).status == 421
        form = {"token": browser.token}
        answer = await browser.post("/login", form, Origin="http://evil.example")
        assert answer.status == 403


async def test_headers_keep_everything_else_out(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(READ_ONLY) as (_, browser):
        for path in ("/", "/nope", "/static/console.css", "/livez"):
            headers = (await browser.get(path)).headers
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_login_and_its_end(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        with caplog.at_level(logging.INFO):
            answer = await browser.post("/login", {"token": "wrong"})
        assert answer.status == 403
        assert "not the console" in answer.text
        assert browser.token not in caplog.text
        assert "wrong" not in caplog.text
        answer = await browser.post("/login?next=/ledgers", {"token": browser.token})
        assert (answer.status, answer.headers["Location"]) == (303, "/ledgers")
        cookie = answer.headers["Set-Cookie"]
        assert COOKIE in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await browser.get("/")).status == 200
        assert (await browser.post("/logout", {})).status == 303
        assert (await browser.get("/")).status == 303
        answer = await browser.post("/login?next=//evil.example", {"token": browser.token})
        assert answer.headers["Location"] == "/"


async def test_forms_that_are_no_forms(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        answer = await browser.send_bytes("/login", b"token=%ff%fe")
        assert (answer.status, "not the console" in answer.text) == (403, True)
        answer = await browser.send_bytes("/login", b"token=" + b"x" * 100_000)
        assert answer.status == 413
        answer = await browser.send_bytes("/login", b"\xff\xfe=\xff")
        assert answer.status in (400, 403)
        await browser.log_in()
        for body in (b"form_token=" + b"x" * 100_000, b"\xff\xfe", b""):
            answer = await browser.send_bytes("/nope", body)
            assert answer.status in (403, 404, 405)
            assert "Content-Security-Policy" in answer.headers or answer.status == 405


async def test_a_program_sends_the_token_itself(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        bearer = {"Authorization": f"Bearer {browser.token}"}
        assert (await browser.get("/metrics", **bearer)).status == 200
        assert (await browser.get("/metrics", Authorization="Bearer wrong")).status == 401


async def test_wrong_tokens_of_programs_are_audited_and_limited(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        with caplog.at_level(logging.INFO):
            for number in range(LOGINS_OF_ADDRESS_MAX):
                path = "/metrics" if number % 2 else "/nope"
                answer = await browser.get(path, Authorization=f"Bearer {number}")
                assert answer.status == 401
        assert [record for record in caplog.records if record.message == "audit"]
        bearer = {"Authorization": f"Bearer {browser.token}"}
        assert (await browser.get("/metrics", **bearer)).status == 429
        assert (await browser.log_in()).status == 429


async def test_the_login_of_a_proxy_is_no_wrong_token(memory_cluster: MemoryCluster) -> None:
    """A proxy that asks for a password sends it with each request, also with that of the login."""
    await memory_cluster.create("a")
    async with open_console(WRITES) as (_, browser):
        basic = {"Authorization": "Basic b3BlcmF0b3I6cGFzc3dvcmQ="}
        for _ in range(LOGINS_OF_ADDRESS_MAX + 1):
            assert (await browser.get("/", **basic)).status == 303
        assert (await browser.get("/login", **basic)).status == 200
        assert (await browser.log_in()).status == 303


async def test_a_short_token_is_refused(memory_cluster: MemoryCluster, tmp_path: Path) -> None:
    await memory_cluster.create("a")
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("short")
    options = replace(WRITES, admin_token_file=str(tmp_path / "token"))
    with pytest.raises(SecretError, match="fewer than 16 characters"):
        async with open_console(options):
            pass


async def test_a_failure_of_a_page_is_a_page(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_request: object) -> object:
        raise ValueError("<script>secret</script>")

    def routes(_context: ConsoleContext, _guard: Guard) -> list[Route]:
        return [Route("GET", "/", fail)]  # type: ignore[arg-type]

    monkeypatch.setattr(server, "routes", routes)
    await memory_cluster.create("a")
    async with open_console(READ_ONLY) as (_, browser):
        answer = await browser.get("/")
        assert answer.status == 500
        assert "secret" not in answer.text


async def test_a_console_below_a_path(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    options = ConsoleOptions(metadata=ADDRESS, port=0, base_path="/quire")
    async with open_console(options) as (_, browser):
        text = (await browser.get("/")).text
        for target in re.findall(r'(?:href|src|action)="([^"]*)"', text):
            assert target.startswith(("/quire/", "#")), target


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_session_ends_after_its_time_and_with_a_logout() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    first, second = sessions.log_in("secret", "a"), sessions.log_in("secret", "a")
    assert first
    assert second
    assert first != second
    assert sessions.get(first)
    assert sessions.get(second)
    sessions.log_out(first)
    assert sessions.get(first) is None
    clock.now_s = SESSION_S
    assert sessions.get(second) is None


def test_the_oldest_session_ends_when_there_are_too_many() -> None:
    sessions = Sessions("secret", Clock())
    ids = [sessions.log_in("secret", "a") for _ in range(SESSIONS_MAX + 1)]
    assert ids[0]
    assert sessions.get(ids[0]) is None
    assert ids[1]
    assert sessions.get(ids[1])


def test_a_wrong_token_is_refused_and_guessing_is_limited() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    for number in range(LOGINS_OF_ADDRESS_MAX):
        assert sessions.log_in(f"guess {number}", "a") is None
    with pytest.raises(TooManyLoginsError):
        sessions.log_in("secret", "a")
    assert sessions.log_in("secret", "b"), "others log in meanwhile"
    clock.now_s = LOGINS_PERIOD_S
    assert sessions.log_in("secret", "a")


def test_guesses_from_one_ipv6_network_are_those_of_one_client() -> None:
    sessions = Sessions("secret", Clock())
    for number in range(LOGINS_OF_ADDRESS_MAX):
        assert sessions.log_in("guess", f"2001:db8::{number:x}") is None
    with pytest.raises(TooManyLoginsError):
        sessions.log_in("secret", "2001:db8::ffff")
    assert sessions.log_in("secret", "2001:db8:0:1::1"), "others log in meanwhile"


def test_guesses_from_many_addresses_keep_no_other_out() -> None:
    sessions = Sessions("secret", Clock())
    for number in range(ADDRESSES_MAX + 1):
        assert sessions.log_in("guess", str(number)) is None
    assert sessions.log_in("secret", "b")


def test_without_a_token_no_login_is_possible() -> None:
    assert Sessions("", Clock()).log_in("", "a") is None


def test_a_form_token_is_of_one_holder_and_one_run() -> None:
    sessions = Sessions("secret", Clock())
    token = sessions.form_token("a")
    assert sessions.is_form_token("a", token)
    assert not sessions.is_form_token("b", token)
    assert not sessions.is_form_token("a", "")
    assert not Sessions("secret", Clock()).is_form_token("a", token)
