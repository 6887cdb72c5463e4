"""Admin server of a bookie that lists entries as a test says."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

AdminAnswer = Callable[[web.Request], object | Awaitable[object]]


@asynccontextmanager
async def admin_server(answers: Mapping[int, AdminAnswer]) -> AsyncIterator[str]:
    """Serve the lists of these ledgers on a port that the kernel gives; yield the address."""

    async def entries(request: web.Request) -> web.Response:
        answer = answers.get(int(request.match_info["ledger_id"]))
        if answer is None:
            raise web.HTTPNotFound(reason="not stored here")
        found = answer(request)
        return web.json_response(await found if inspect.isawaitable(found) else found)

    application = web.Application()
    application.router.add_get("/api/v1/ledgers/{ledger_id}/entries", entries)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def complete_list(*ranges: tuple[int, int]) -> AdminAnswer:
    """Return the answer of a bookie that holds these entries."""
    return lambda _: {
        "status": "ok",
        "ranges": [list(range_) for range_ in ranges],
        "complete": True,
    }
