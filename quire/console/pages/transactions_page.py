"""Page of transactions that are open for long, and their end behind a page that says what it does.

Leaves reading and ending to `quire.console.topics.transaction_reading`.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from quire.console.asked import asked_number
from quire.console.context import ConsoleContext, Route, see_other
from quire.console.topics.access import with_brokers
from quire.console.topics.transaction_reading import abort, read_one, read_open
from quire.operate.brokers import BrokerAccess

SECONDS_DEFAULT: Final = 60
SECONDS_MAX: Final = 30 * 24 * 3600
MS_PER_S: Final = 1_000
TITLE: Final = "Transactions"


class TransactionPages:
    """Pages of transactions."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        context = self._context
        return (
            Route("GET", "/transactions", with_brokers(context, TITLE, self._list)),
            Route("GET", "/transactions/abort", with_brokers(context, TITLE, self._confirm)),
            Route("POST", "/transactions/abort", with_brokers(context, TITLE, self._abort)),
        )

    async def _list(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        seconds = asked_number(request.query, "seconds", SECONDS_DEFAULT, SECONDS_MAX)
        found = await read_open(brokers, seconds * MS_PER_S)
        return self._context.page(
            request, "transactions.html", seconds=seconds, seconds_max=SECONDS_MAX, found=found
        )

    async def _confirm(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        transactional_id = request.query.get("id", "")
        found = await read_one(brokers, transactional_id) if transactional_id else None
        if found is None:
            raise web.HTTPNotFound(text="there is no such transactional id")
        return self._context.page(request, "transaction_abort.html", found=found)

    async def _abort(self, request: web.Request, brokers: BrokerAccess) -> web.StreamResponse:
        transactional_id = str((await request.post()).get("id", ""))
        found = await read_one(brokers, transactional_id) if transactional_id else None
        if found is None:
            raise web.HTTPNotFound(text="there is no such transactional id")
        if not found.may_abort:
            raise web.HTTPConflict(text="it is not open any more, or its outcome is decided")
        await abort(brokers, found)
        return see_other(request.rel_url.raw_path.removesuffix("/abort"))
