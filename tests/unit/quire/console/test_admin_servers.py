"""Admin servers that do not answer in time."""

import asyncio

import pytest
from aiohttp import web

from quire.console.admin_servers import SILENT_S, AdminServers
from quire.identity.client_file import NO_IDENTITY
from quire.operate.admin_api import AdminSilentError
from tests.support.quire.admin_server import admin_server

ASK_S = 0.05
LONG_S = 60.0


async def test_a_silent_server_is_asked_again_only_after_a_while() -> None:
    now_s, requests, is_hung = 100.0, 0, True

    async def answer(_: web.Request) -> object:
        nonlocal requests
        requests += 1
        if is_hung:
            await asyncio.sleep(LONG_S)
        return {"status": "ok"}

    async with admin_server({7: answer}) as url:
        servers = AdminServers(NO_IDENTITY, lambda: now_s)
        path = f"{url}/api/v1/ledgers/7/entries"
        with pytest.raises(AdminSilentError, match="within"):
            await servers.get_json(path, ASK_S)
        is_hung = False
        for ask in (servers.get_json, servers.get_text):
            with pytest.raises(AdminSilentError, match="asked again in 10 s"):
                await ask(path, LONG_S)
        now_s += SILENT_S
        assert await servers.get_json(path, LONG_S) == {"status": "ok"}
        assert requests == 2


async def test_an_answer_that_is_an_error_is_no_silence() -> None:
    async with admin_server({}) as url:
        servers = AdminServers(NO_IDENTITY, lambda: 0.0)
        for _ in range(2):
            with pytest.raises(Exception, match="404"):
                await servers.get_text(f"{url}/api/v1/ledgers/7/entries", LONG_S)
