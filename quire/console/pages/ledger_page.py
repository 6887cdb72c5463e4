"""Pages of ledgers: the list; one ledger, its safety, its history and its entries; its live tail.

Format: an event `entries` with JSON, {"entries": [{"id", "text", "length", "cut"}], "skipped"}, and
the last entry as its id; an event `end` with a sentence, after which the browser stops. Without
`end`, a browser comes back with `Last-Event-ID`.

Source: protocol rules 8.4 and 8.5.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aiohttp import web

from ledger_client import LedgerError, LedgerNotFoundError, LedgerReader, UnauthorizedError
from ledger_client.cluster_access import Cluster, read_ledger
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, BookieId, LedgerId
from metadata.ledgers.copies import Copies, fewest_copies
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.registry.registration import BookieRegistration
from quire.console.admin_servers import AdminServers
from quire.console.context import ConsoleContext, Pages, Route
from quire.console.entries import (
    END_S,
    ENTRIES_MAX,
    Form,
    LedgerToRead,
    form_of,
    open_reader,
    read_end,
    read_entries,
    shown,
)
from quire.console.latency import LOOK_EVERY_S, latency_view, timeline
from quire.console.safety import GridView, Held, compare_copies, grid_view, safety_view
from quire.console.templating import ROWS_PER_PAGE, Page, asked_number, number_of
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, AdminNotFoundError, AdminSilentError
from quire.operate.as_json import text_or_base64
from quire.operate.fields import Json
from quire.operate.repair import read_explanation
from quire.server.overriding import override

PATH: Final = "/ledgers/{ledger_id}"
PASSWORD_CHARACTERS_MAX: Final = 1_000
SEARCHED_MAX: Final = 2_000
"""Maximum number of ledgers that one search reads; a link continues it."""
SEARCH_CHARACTERS_MAX: Final = 1_000
CUSTOM_SHOWN_MAX: Final = 100
"""Maximum number of names of custom metadata, lost ranges and given-up parts on a page."""
TAIL_PATH: Final = "/ledgers/{ledger_id}/tail"
STREAMS_MAX: Final = 16
STREAM_S: Final = 300.0
PAUSE_S: Final = 0.25
"""Time between two events: at most four in a second."""
IDLE_S: Final = 15.0
"""Time after which a comment is sent, which finds out that the browser is gone."""
RETRY_MS: Final = 2_000
FIRST_ENTRIES: Final = 10
"""Confirmed entries with which a tail begins."""
TOO_MANY: Final = f"{STREAMS_MAX} tails of this console are open: close another one, and try again."
PASSWORD_NEEDED: Final = (
    "The bookies refuse to return entries without the ledger's password, or to this console: use "
    "quire ledger tail."
)
ASK_S: Final = 1.0
PAGES_MAX: Final = 2
RANGES_PER_PAGE: Final = 1_000
BOOKIES_MAX: Final = 60
"""Maximum number of bookies that are asked for one page; those of the newest fragments are first.
"""
UNREADABLE: Final = "its list of entries cannot be read: it may have another release"
DOWN: Final = Held(problem="it is down", is_up=False)
NO_ADDRESS: Final = Held(problem="it has no admin address")
COMPLETE: Final = Held(through=ENTRY_ID_MAX)
TOO_MANY_BOOKIES: Final = Held(problem=f"more than {BOOKIES_MAX} bookies hold this ledger")


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
            asked = number_of(str(fields.get(name, "")), NO_ENTRY, ENTRY_ID_MAX)
            return None if asked == NO_ENTRY else asked

        return cls(
            number("fragments"),
            number("fragment"),
            number("at") or 0,
            number("from"),
            form_of(str(fields.get("as", ""))),
        )


class LedgerPages(Pages):
    """Page of one ledger.

    Nothing is fenced or written; the password that a viewer gives is used for one page, and is
    neither in an address nor in a log.
    """

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
            copies=_copies(cluster, metadata),
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


def _copies(cluster: Cluster, ledger: LedgerMetadata) -> Copies | None:
    """Return the copies by the metadata, as the list and the page of a ledger say them."""
    up = cluster.directory.bookies
    in_limbo = [registration.bookie_id for registration in up.values() if registration.is_in_limbo]
    return fewest_copies(ledger, up, in_limbo)


def _custom(ledger: LedgerMetadata) -> list[tuple[str, object]]:
    pairs = list(ledger.custom.items())[:CUSTOM_SHOWN_MAX]
    return [(name, text_or_base64(value)) for name, value in pairs]


def _problems(held: Mapping[BookieId, Held]) -> list[tuple[BookieId, str]]:
    """Return the bookies without a complete list, with the reason."""
    return [(bookie, held[bookie].problem) for bookie in sorted(held) if held[bookie].problem]


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


def _is_found(ledger: LedgerMetadata | None, text: str) -> bool:
    """Return whether custom metadata has what a search asks for: `name=value`, or `name` with any
    value. Without a text everything is found.
    """
    if not text or ledger is None:
        return not text
    if text in ledger.custom:
        return True
    return any(
        ledger.custom.get(text[:place]) in (text[place + 1 :], text[place + 1 :].encode())
        for place, character in enumerate(text)
        if character == "="
    )


class LedgerListPages(Pages):
    """List of ledgers."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (Route("GET", "/ledgers", self._list),)

    async def _list(self, request: web.Request) -> web.Response:
        start = asked_number(request.query, "from", 0, LEDGER_ID_MAX)
        text = request.query.get("metadata", "").strip()[:SEARCH_CHARACTERS_MAX]
        page, read_count = await self._page(start, text)
        return self._context.page(
            request, "ledgers.html", page=page, searched=text, read_count=read_count
        )

    async def _page(self, start: int, text: str) -> tuple[Page[LedgerRow], int]:
        """Return the ledgers from `start` on that a text finds, and how many were read."""
        most = SEARCHED_MAX if text else ROWS_PER_PAGE
        ids: list[LedgerId] = []
        async for ledger_id in self._context.cluster.ledgers.list_ledger_ids(LedgerId(start)):
            ids.append(ledger_id)
            if len(ids) > most:
                break
        rows: list[LedgerRow] = []
        end = 0
        while end < min(most, len(ids)) and len(rows) < ROWS_PER_PAGE:
            some = ids[end : min(end + ROWS_PER_PAGE, most)]
            found = await asyncio.gather(*map(self._row, some))
            rows += [row for row in found if row is not None and _is_found(row.ledger, text)]
            end += len(some)
        return Page(rows, start, ids[end] if end < len(ids) else None), end

    async def _row(self, ledger_id: LedgerId) -> LedgerRow | None:
        cluster = self._context.cluster
        try:
            ledger, _ = await cluster.ledgers.get(ledger_id)
        except NodeNotFoundError:
            return None  # deleted meanwhile
        except MetadataFormatError:
            return LedgerRow(ledger_id, None, None)
        return LedgerRow(ledger_id, ledger, _copies(cluster, ledger))


class LedgerTailPages(Pages):
    """Live tails of all ledgers.

    At most STREAMS_MAX streams of one console at a time, each for at most STREAM_S, so that a login
    is checked again; an event each PAUSE_S at most, with at most ENTRIES_MAX entries: the older
    ones are counted as skipped, and not read. Nothing is fenced or written.
    """

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._open_count = 0

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (Route("GET", TAIL_PATH, self._tail, limit_s=None),)

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        ledger = await found_ledger(self._context.cluster, request, b"")
        stream = web.StreamResponse()
        stream.content_type = "text/event-stream"
        await stream.prepare(request)
        is_full = self._open_count >= STREAMS_MAX
        self._open_count += 1
        try:
            end = TOO_MANY if is_full else await self._follow(request, stream, ledger)
            if end:
                await stream.write(f"event: end\ndata: {end}\n\n".encode())
        except ConnectionResetError:
            pass  # the browser is gone
        finally:
            self._open_count -= 1
        return stream

    async def _follow(
        self, request: web.Request, stream: web.StreamResponse, ledger: LedgerToRead
    ) -> str:
        """Send entries; return why there is nothing more, or nothing if the browser shall come
        back.
        """
        after = request.headers.get("Last-Event-ID") or request.query.get("after")
        position = number_of(after, NO_ENTRY, ENTRY_ID_MAX)
        form = form_of(request.query.get("as"))
        await stream.write(f"retry: {RETRY_MS}\n\n".encode())
        try:
            async with (
                asyncio.timeout(STREAM_S),
                open_reader(self._context.cluster, ledger) as reader,
            ):
                if position == NO_ENTRY:
                    position = max(NO_ENTRY, await reader.learn_last_confirmed() - FIRST_ENTRIES)
                return await _send_new_entries(reader, stream, position, form)
        except UnauthorizedError:
            return PASSWORD_NEEDED
        except (LedgerError, MetadataError) as error:
            return _one_line(str(error))
        except TimeoutError:
            return ""


async def _send_new_entries(
    reader: LedgerReader, stream: web.StreamResponse, position: int, form: Form
) -> str:
    while True:
        last = await reader.wait_confirmed(position, timeout=IDLE_S)
        if last > position:
            first = max(position + 1, last - ENTRIES_MAX + 1)
            entries = await _read(reader, first, last, form)
            value = json.dumps({"entries": entries, "skipped": first - position - 1})
            await stream.write(f"event: entries\nid: {last}\ndata: {value}\n\n".encode())
            position = last
            await asyncio.sleep(PAUSE_S)
        elif reader.is_closed:
            return f"The ledger is closed: its last entry is {last}."
        else:
            await stream.write(b": idle\n\n")


async def _read(
    reader: LedgerReader, first: int, last: int, form: Form
) -> list[dict[str, str | int | bool]]:
    rows: list[dict[str, str | int | bool]] = []
    async with aclosing(reader.read(first, last, timeout=END_S)) as batches:
        async for batch in batches:
            for entry in batch:
                cell = shown(bytes(entry.data), form)
                rows.append(
                    {
                        "id": entry.id,
                        "text": cell.text,
                        "length": cell.length,
                        "cut": cell.is_cut,
                    }
                )
    return rows


def _one_line(text: str) -> str:
    """Return a text without line ends, which would end the event's data."""
    return " ".join(text.split())


async def ask_bookies(
    ledger: LedgerMetadata,
    up: Mapping[BookieId, BookieRegistration],
    servers: AdminServers,
) -> dict[BookieId, Held]:
    """Return what each bookie that the ledger's fragments name lists.

    Each bookie is asked at the same time, for at most PAGES_MAX pages of RANGES_PER_PAGE ranges,
    each for at most ASK_S; a bookie without a complete answer is not checked beyond what it said.
    """
    newest_first = reversed((*ledger.given_up, *ledger.fragments))
    named = dict.fromkeys(b for part in newest_first for b in (*part.ensemble, *part.incoming))
    held = {bookie: DOWN for bookie in named if bookie not in up}
    to_ask = [bookie for bookie in named if bookie in up]
    held |= dict.fromkeys(to_ask[BOOKIES_MAX:], TOO_MANY_BOOKIES)
    answers = [_ask(ledger.ledger_id, up[bookie], servers) for bookie in to_ask[:BOOKIES_MAX]]
    return held | dict(zip(to_ask, await asyncio.gather(*answers), strict=False))


async def _ask(ledger_id: LedgerId, bookie: BookieRegistration, servers: AdminServers) -> Held:
    if not bookie.admin_url:
        return NO_ADDRESS
    ranges: list[Range] = []
    try:
        for _ in range(PAGES_MAX):
            first = ranges[-1][1] + 1 if ranges else 0
            page = f"first={first}&limit={RANGES_PER_PAGE}"
            url = f"{bookie.admin_url}/api/v1/ledgers/{ledger_id}/entries?{page}"
            status, listed, is_complete = _listed_in(await servers.get_json(url, ASK_S))
            ranges += listed
            if status != "ok":
                problem = f"it answered {status}: it may have lost stored data"
                return Held(ranges, NO_ENTRY, problem)
            if is_complete:
                return Held(ranges, ENTRY_ID_MAX)
            if not listed:
                break
    except AdminNotFoundError:
        return COMPLETE if not ranges else Held(problem="its copies were removed meanwhile")
    except AdminSilentError:
        return _partial(ranges, f"it did not answer within {ASK_S:.0f} s")
    except (AdminApiError, SecurityError) as error:
        return _partial(ranges, str(error))
    return _partial(ranges, f"its list has more than {PAGES_MAX * RANGES_PER_PAGE:,} ranges")


def _partial(ranges: Sequence[Range], problem: str) -> Held:
    return Held(ranges, ranges[-1][1] if ranges else NO_ENTRY, problem)


def _listed_in(answer: Json) -> tuple[str, list[Range], bool]:
    """Return the status, the ranges and whether they are all. Raises AdminApiError."""
    match answer:
        case {"status": str() as status, "ranges": list() as pairs, "complete": bool() as complete}:
            ranges = [_range(pair) for pair in pairs]
            if all(before[1] < after[0] for before, after in pairwise(ranges)):
                return status, ranges, complete
        case _:
            pass
    raise AdminApiError(UNREADABLE)


def _range(pair: Json) -> Range:
    match pair:
        case [int() as first, int() as last] if 0 <= first <= last <= ENTRY_ID_MAX:
            return first, last
        case _:
            raise AdminApiError(UNREADABLE)
