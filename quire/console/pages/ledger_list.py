"""List of all ledgers, one page of ids at a time.

Leaves single ledgers to `ledger_page`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.asked import asked_number
from quire.console.context import ConsoleContext, Route
from quire.console.paging import ROWS_PER_PAGE, Page
from quire.operate.copy_counts import Copies, fewest_copies


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What the list shows of one ledger."""

    ledger_id: LedgerId
    ledger: LedgerMetadata | None
    """None if the record cannot be read."""
    copies: Copies | None


class LedgerListPages:
    """List of ledgers."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return (Route("GET", "/ledgers", self._list),)

    async def _list(self, request: web.Request) -> web.Response:
        start = asked_number(request.query, "from", 0, LEDGER_ID_MAX)
        return self._context.page(request, "ledgers.html", page=await self._page(start))

    async def _page(self, start: int) -> Page[LedgerRow]:
        ids: list[LedgerId] = []
        async for each in self._context.cluster.ledgers.list_ledger_ids(LedgerId(start)):
            ids.append(each)
            if len(ids) > ROWS_PER_PAGE:
                break
        rows = await asyncio.gather(*map(self._row, ids[:ROWS_PER_PAGE]))
        next_start = ids[ROWS_PER_PAGE] if len(ids) > ROWS_PER_PAGE else None
        return Page([each for each in rows if each is not None], start, next_start)

    async def _row(self, ledger_id: LedgerId) -> LedgerRow | None:
        cluster = self._context.cluster
        try:
            ledger, _ = await cluster.ledgers.get(ledger_id)
        except NodeNotFoundError:
            return None  # deleted meanwhile
        except MetadataFormatError:
            return LedgerRow(ledger_id, None, None)
        up = cluster.directory.bookies
        in_limbo = [each.bookie_id for each in up.values() if each.is_in_limbo]
        return LedgerRow(ledger_id, ledger, fewest_copies(ledger, up, in_limbo))
