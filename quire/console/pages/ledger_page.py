"""Pages of ledgers: the list, and one ledger with its safety, what happened to it, and its entries.

Leaves what is shown to `quire.console.ledger`, drawings to `quire.console.drawings`, and the live
tail to `ledger_tail`.

Invariants: nothing is fenced or written; the password that a viewer gives is used for one page,
and is neither in an address nor in a log.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ledger_client import LedgerNotFoundError
from ledger_client.cluster_access import Cluster, read_ledger
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, BookieId, LedgerId
from metadata.ledgers.copies import Copies, fewest_copies
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from quire.console.context import Pages, Route
from quire.console.latency import LOOK_EVERY_S, latency_view
from quire.console.ledger.entry_reading import ENTRIES_MAX, LedgerToRead, read_end, read_entries
from quire.console.ledger.held_entries import ask_bookies
from quire.console.ledger.parts import Held, compare_copies
from quire.console.ledger.payloads import Form, form_of
from quire.console.ledger.safety_view import GridView, grid_view, safety_view
from quire.console.ledger.timeline import timeline
from quire.console.paging import ROWS_PER_PAGE, Page, asked_number, number_of
from quire.operate.as_json import text_or_base64
from quire.operate.repair_explanation import read_explanation
from quire.server.overriding import override

PATH: Final = "/ledgers/{ledger_id}"
PASSWORD_CHARACTERS_MAX: Final = 1_000
CUSTOM_SHOWN_MAX: Final = 100
"""Maximum number of names of custom metadata, lost ranges and given-up parts on a page."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    fragments: int | None = None
    """First fragment of the map; None for the newest."""
    fragment: int | None = None
    """Fragment whose entries are shown one by one."""
    at: int = 0
    """First entry of the grid."""
    start: int | None = None
    """First entry whose payload is shown."""
    form: Form = Form.TEXT

    @classmethod
    def of(cls, fields: Mapping[str, object]) -> "Wanted":
        """Return what the fields of a query or a form ask for; anything odd is left out."""

        def number(name: str) -> int | None:
            found = number_of(str(fields.get(name, "")), NO_ENTRY, ENTRY_ID_MAX)
            return None if found == NO_ENTRY else found

        return cls(
            number("fragments"),
            number("fragment"),
            number("at") or 0,
            number("from"),
            form_of(str(fields.get("as", ""))),
        )


class LedgerPages(Pages):
    """Page of one ledger."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (Route("GET", PATH, self._show), Route("POST", PATH, self._show_with_password))

    async def _show(self, request: web.Request) -> web.Response:
        return await self._page(request, Wanted.of(request.query), b"")

    async def _show_with_password(self, request: web.Request) -> web.Response:
        form = await request.post()
        password = str(form.get("password", ""))[:PASSWORD_CHARACTERS_MAX]
        return await self._page(request, Wanted.of(form), password.encode())

    async def _page(self, request: web.Request, wanted: Wanted, password: bytes) -> web.Response:
        context, cluster = self._context, self._context.cluster
        ledger = await found_ledger(cluster, request, password)
        metadata = ledger.metadata
        explanation, end, held = await asyncio.gather(
            read_explanation(cluster, metadata, context.wall_clock_ms()),
            read_end(cluster, ledger),
            ask_bookies(metadata, cluster.directory.bookies, context.admin_servers),
        )
        compared = await compare_copies(metadata, held, end.last_confirmed)
        entries = None
        if wanted.start is not None and wanted.start <= end.last_confirmed:
            entries = await read_entries(
                cluster, ledger, wanted.start, end.last_confirmed, wanted.form
            )
        events = timeline(metadata, explanation.job, explanation.claim)
        return context.page(
            request,
            "ledger.html",
            ledger=metadata,
            custom=_custom(metadata),
            shown_max=CUSTOM_SHOWN_MAX,
            is_open=metadata.state is not LedgerState.CLOSED,
            end=end,
            safety=safety_view(metadata, held, end, compared, wanted.fragments, request.path),
            grid=_grid(metadata, held, end.last_confirmed, wanted),
            problems=_problems(held),
            repair=explanation.sentence,
            events=events,
            latency=latency_view(metadata, context.appends, events),
            latency_every_s=LOOK_EVERY_S,
            entries=entries,
            entries_max=ENTRIES_MAX,
            wanted=wanted,
            has_password=bool(password),
            forms=list(Form),
        )


async def found_ledger(cluster: Cluster, request: web.Request, password: bytes) -> LedgerToRead:
    """Read the ledger that a path names. Raises HTTPNotFound, MetadataError."""
    number = number_of(request.match_info["ledger_id"], -1, LEDGER_ID_MAX)
    try:
        if number >= 0:
            return LedgerToRead.of(*await read_ledger(cluster, LedgerId(number)), password)
    except LedgerNotFoundError:
        pass
    raise web.HTTPNotFound(text="there is no ledger with this id: the list of ledgers shows them")


def _custom(ledger: LedgerMetadata) -> list[tuple[str, object]]:
    pairs = list(ledger.custom.items())[:CUSTOM_SHOWN_MAX]
    return [(name, text_or_base64(value)) for name, value in pairs]


def _problems(held: Mapping[BookieId, Held]) -> list[tuple[BookieId, str]]:
    """Return the bookies without a complete list, with the reason."""
    return [(each, held[each].problem) for each in sorted(held) if held[each].problem]


def _grid(
    ledger: LedgerMetadata, held: Mapping[BookieId, Held], confirmed: int, wanted: Wanted
) -> GridView | None:
    if wanted.fragment is None or wanted.fragment >= len(ledger.fragments):
        return None
    return grid_view(ledger, held, confirmed, wanted.fragment, wanted.at)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What the list shows of one ledger."""

    ledger_id: LedgerId
    ledger: LedgerMetadata | None
    """None if the record cannot be read."""
    copies: Copies | None


class LedgerListPages(Pages):
    """List of ledgers."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
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
