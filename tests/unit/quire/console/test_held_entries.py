"""Lists of entries that bookies return, or do not return."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, BookieId
from metadata.registry.registration import BookieRegistration
from quire.console.admin_servers import AdminServers
from quire.console.pages import ledger_page as held_entries
from quire.console.pages.ledger_page import PAGES_MAX, ask_bookies
from quire.console.safety import Held
from quire.identity.client_file import NO_IDENTITY
from tests.support.quire.admin_server import AdminAnswer, admin_server
from tests.support.sample_ledgers import closed_ledger


def admin_servers() -> AdminServers:
    return AdminServers(NO_IDENTITY, asyncio.get_running_loop().time)


@asynccontextmanager
async def asked(answer: AdminAnswer) -> AsyncIterator[Held]:
    """Ask one bookie that answers in this way."""
    name = BookieId("a")
    async with admin_server({7: answer}) as url:
        up = {name: BookieRegistration(name, "host", 4181, admin_url=url)}
        yield (await ask_bookies(closed_ledger("abc"), up, admin_servers()))[name]


def page(ranges: list[list[int]], *, complete: bool, status: str = "ok") -> dict[str, object]:
    return {"ledger_id": 7, "status": status, "ranges": ranges, "complete": complete}


async def test_pages_are_joined() -> None:
    def answer(request: web.Request) -> object:
        if request.query["first"] == "0":
            return page([[0, 4], [6, 9]], complete=False)
        assert request.query["first"] == "10"
        return page([[12, 15]], complete=True)

    async with asked(answer) as held:
        assert held == Held([(0, 4), (6, 9), (12, 15)], ENTRY_ID_MAX)


async def test_the_number_of_pages_is_limited() -> None:
    def answer(request: web.Request) -> object:
        first = int(request.query["first"])
        return page([[first + 1, first + 1]], complete=False)

    async with asked(answer) as held:
        assert len(held.ranges) == PAGES_MAX
        assert held.through == held.ranges[-1][1]
        assert "ranges" in held.problem


async def test_a_bookie_that_does_not_have_the_ledger() -> None:
    def answer(_: web.Request) -> object:
        raise web.HTTPNotFound(reason="ledger 7 is not stored here")

    async with asked(answer) as held:
        assert held == Held((), ENTRY_ID_MAX)


async def test_a_bookie_that_may_have_lost_data_proves_nothing() -> None:
    async with asked(lambda _: page([[0, 3]], complete=False, status="unknown")) as held:
        assert (held.ranges, held.through) == ([(0, 3)], NO_ENTRY)
        assert "may have lost" in held.problem


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"status": "ok"},
        page([[5, 4]], complete=True),
        page([[0, 5], [5, 9]], complete=True),
        page([["<b>", 1]], complete=True),  # type: ignore[list-item]
        page([[0, 2**70]], complete=True),
    ],
)
async def test_an_odd_answer_is_not_used(answer: object) -> None:
    async with asked(lambda _: answer) as held:
        assert (held.ranges, held.through) == ([], NO_ENTRY)
        assert "cannot be read" in held.problem


async def test_a_bookie_that_hangs_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_entries, "ASK_S", 0.05)

    async def answer(_: web.Request) -> object:
        await asyncio.sleep(5)
        return {}

    async with asked(answer) as held:
        assert held.through == NO_ENTRY
        assert "did not" in held.problem


async def test_bookies_that_are_down_or_have_no_address_are_not_asked() -> None:
    up = {BookieId("b"): BookieRegistration(BookieId("b"), "host", 4181)}
    held = await ask_bookies(closed_ledger("ab"), up, admin_servers())
    assert not held[BookieId("a")].is_up
    assert held[BookieId("b")].is_up
    assert held[BookieId("b")].problem == "it has no admin address"
