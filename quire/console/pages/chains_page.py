"""Pages of chains: the list, and one chain with the ledgers of its newest links.

Source: Spark design, "Writing: exactly once".
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from metadata.errors import ChainNotFoundError, InvalidChainNameError
from metadata.ledgers.chain import INDEX_MAX, ChainHead, ChainLink
from metadata.ledgers.chain_store import ChainStore
from quire.console.context import Pages, Route
from quire.console.templating import ROWS_PER_PAGE, Page, asked_number, slice_of
from quire.server.overriding import override

LIST_START_MAX: Final = 10**7
LEDGERS_SHOWN_MAX: Final = 20
"""Maximum number of ledgers of one link that a page names."""
NO_CHAIN: Final = "there is no chain with this name: the list of chains shows them"


@dataclass(frozen=True, slots=True)
class ChainRow:
    """What the list shows of one chain."""

    name: str
    head: ChainHead
    newest: ChainLink | None
    """None if the chain has no link."""


class ChainPages(Pages):
    """Pages of chains. Nothing is changed."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (
            Route("GET", "/chains", self._list),
            Route("GET", "/chains/{chain}", self._show),
        )

    async def _list(self, request: web.Request) -> web.Response:
        chains = self._chains()
        names = await chains.names()
        page = slice_of(names, asked_number(request.query, "from", 0, LIST_START_MAX))
        rows = await asyncio.gather(*(_row(chains, name) for name in page.rows))
        shown = Page([row for row in rows if row is not None], page.start, page.next_start)
        return self._context.page(request, "chains.html", page=shown, total=len(names))

    async def _show(self, request: web.Request) -> web.Response:
        chains, name = self._chains(), request.match_info["chain"]
        try:
            head, _ = await chains.head(name)
        except (ChainNotFoundError, InvalidChainNameError) as error:
            raise web.HTTPNotFound(text=NO_CHAIN) from error
        end = min(asked_number(request.query, "before", INDEX_MAX, INDEX_MAX), head.next_index)
        begin = max(head.first_index, end - ROWS_PER_PAGE)
        links = await chains.links(name, begin, end)
        return self._context.page(
            request,
            "chain.html",
            name=name,
            head=head,
            links=[(index, link) for index, link in reversed(links) if link is not None],
            begin=begin,
            end=end,
            ledgers_max=LEDGERS_SHOWN_MAX,
        )

    def _chains(self) -> ChainStore:
        context = self._context
        return ChainStore(context.cluster.store, context.cluster.rng, context.wall_clock_ms)


async def _row(chains: ChainStore, name: str) -> ChainRow | None:
    try:
        head, _ = await chains.head(name)
    except ChainNotFoundError:
        return None  # deleted meanwhile
    first = max(head.first_index, head.next_index - 1)
    newest = [link for _, link in await chains.links(name, first, head.next_index)]
    return ChainRow(name, head, newest[0] if newest else None)
