"""Live tail of a ledger, as Server-Sent Events.

Leaves reading to `quire.console.ledger.entry_reading`, and the list of entries to
`static/ledger.js`.

Format: an event `entries` with JSON, {"entries": [{"id", "text", "length", "cut"}], "skipped"}, and
the last entry as its id; an event `end` with a sentence, after which the browser stops. Without
`end`, a browser comes back with `Last-Event-ID`.

Invariants: at most STREAMS_MAX streams of one console at a time, each for at most STREAM_S, so that
a login is checked again; an event each PAUSE_S at most, with at most ENTRIES_MAX entries: the older
ones are counted as skipped, and not read. Nothing is fenced or written.

Source: protocol rules 8.4 and 8.5.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from aiohttp import web

from ledger_client import LedgerError, LedgerReader, UnauthorizedError
from metadata.errors import MetadataError
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY
from quire.console.context import ConsoleContext, Pages, Route
from quire.console.ledger.entry_reading import END_S, ENTRIES_MAX, LedgerToRead, open_reader
from quire.console.ledger.payloads import Form, form_of, shown
from quire.console.pages.ledger_page import found_ledger
from quire.console.paging import number_of
from quire.server.overriding import override

PATH: Final = "/ledgers/{ledger_id}/tail"
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


class LedgerTailPages(Pages):
    """Live tails of all ledgers."""

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._open_count = 0

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (Route("GET", PATH, self._tail, limit_s=None),)

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
    found: list[dict[str, str | int | bool]] = []
    async with aclosing(reader.read(first, last, timeout=END_S)) as batches:
        async for batch in batches:
            for entry in batch:
                each = shown(bytes(entry.data), form)
                found.append(
                    {
                        "id": entry.id,
                        "text": each.text,
                        "length": each.length,
                        "cut": each.is_cut,
                    }
                )
    return found


def _one_line(text: str) -> str:
    """Return a text without line ends, which would end the event's data."""
    return " ".join(text.split())
