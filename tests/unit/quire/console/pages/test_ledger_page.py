"""Page of one ledger, over metadata in memory and lists that tests write."""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from ledger_client import UnauthorizedError
from metadata.ids import ClientId, EntryId, Version
from metadata.ledgers.lost_entries import LostRange
from quire.console.entries import End, EntryRow, EntryRows, Form, LedgerToRead, shown
from quire.console.options import ConsoleOptions
from quire.console.pages import ledger_page
from tests.support.quire.admin_server import admin_server, complete_list
from tests.support.quire.console import Browser, open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

ADDRESS = "zk://nowhere:1/cluster"
READ_ONLY = ConsoleOptions(metadata=ADDRESS, port=0)
WRITES = ConsoleOptions(metadata=ADDRESS, port=0, allow_writes=True)
HOSTILE = '"><script>alert(1)</script>'


@asynccontextmanager
async def bookies_with(cluster: MemoryCluster, **ranges: tuple[int, int]) -> AsyncIterator[None]:
    """Create a cluster whose bookies list these entries of ledger 7."""
    await cluster.create()
    async with AsyncExitStack() as servers:
        for name, found in ranges.items():
            url = await servers.enter_async_context(admin_server({7: complete_list(found)}))
            await cluster.format(name)
            await cluster.start(name, admin_url=url)
        yield


async def page(browser: Browser, query: str = "") -> str:
    answer = await browser.get(f"/ledgers/7{query}")
    assert answer.status == 200, answer.text
    return answer.text


async def test_missing_copies_and_bookies_that_are_down(memory_cluster: MemoryCluster) -> None:
    async with bookies_with(memory_cluster, a=(0, 6), b=(0, 19), c=(0, 19)):
        await memory_cluster.add(closed_ledger("abc", "bcd"))
        async with open_console(READ_ONLY) as (_, browser):
            text = await page(browser)
    assert "1 entry range (3 entries) has 2 of 3 copies." in text
    assert "1 entry range (10 entries) has 2 of 3 copies on the bookies that answered." in text
    assert "a does not list them: it was replaced from entry 10 on" in text
    assert "<td>missing 3 of 10</td>" in text
    assert "<td>bookie down, 10 assigned</td>" in text
    assert "d: it is down" in text
    assert "fragment 1 begins at entry 10: d in place of a" in text
    assert "quire ledger recover" not in text


async def test_a_fragment_entry_by_entry(memory_cluster: MemoryCluster) -> None:
    async with bookies_with(memory_cluster, a=(0, 6), b=(0, 19), c=(0, 19), d=(10, 19)):
        await memory_cluster.add(closed_ledger("abc", "bcd"))
        async with open_console(READ_ONLY) as (_, browser):
            text = await page(browser, "?fragment=0&at=5")
            assert 'id="fragment">Fragment 0, entries 0 to 9' in text
            assert re.search(r"7 to 9</th>\s*<td>missing</td><td>listed</td><td>listed</td>", text)
            assert "fragment=0&amp;at=0#fragment" in text
            for odd in ("?fragment=2", "?fragment=-1", "?fragment=x&at=y&from=z&as=q&fragments=9"):
                assert 'id="fragment"' not in await page(browser, odd)


async def test_hostile_texts_are_escaped(memory_cluster: MemoryCluster) -> None:
    ledger = replace(
        closed_ledger("abc"),
        writer=ClientId("<i>writer</i>"),
        custom={HOSTILE: HOSTILE, "bytes": b"\xff<b>"},
        lost=(LostRange(EntryId(2), EntryId(3), 1_700_000_000_000),),
    )
    async with bookies_with(memory_cluster, a=(0, 9)):
        await memory_cluster.add(ledger)
        async with open_console(READ_ONLY) as (_, browser):
            text = await page(browser, f"?from={HOSTILE}&as={HOSTILE}&fragment=0")
    assert "<script>alert" not in text
    assert "<i>" not in text
    assert "style=" not in text
    assert "&lt;script&gt;alert" in text
    assert "accepted 2023-11-14" in text


async def test_what_is_not_there(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(READ_ONLY) as (_, browser):
        for odd in ("8", "-1", "x", "9" * 30, "%00", "%3Cscript%3E"):
            answer = await browser.get(f"/ledgers/{odd}")
            assert answer.status == 404
            assert "<script>" not in answer.text


async def test_an_open_ledger_whose_bookies_do_not_answer(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(open_ledger("abc", "bcd"))
    async with open_console(READ_ONLY) as (_, browser):
        text = await page(browser)
    assert "The end of this ledger is not known" in text
    assert "Which later entries are confirmed is not known." in text
    assert "quire ledger recover 7 --yes" in text
    assert "data-tail=" in text


class PasswordReads:
    """Reads of a ledger that needs the password `right`, and what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.right = LedgerToRead.of(open_ledger("abc"), Version(0), b"right").keys.master_key
        monkeypatch.setattr(ledger_page, "read_end", self._end)
        monkeypatch.setattr(ledger_page, "read_entries", self._entries)

    async def _end(self, _cluster: object, ledger: LedgerToRead) -> End:
        if ledger.keys.master_key != self.right:
            return End(-1, str(UnauthorizedError("refused the password")), is_refused=True)
        return End(9)

    async def _entries(
        self, _cluster: object, _ledger: object, first: int, last: int, form: Form
    ) -> EntryRows:
        assert (first, last) == (3, 9)
        long = shown(b"x" * 5_000, form)
        rows = (
            EntryRow(3, shown(b"<b>payload</b>", form)),
            EntryRow(4, long),
            EntryRow(5, None, 1),
        )
        return EntryRows(rows, "entry 6 is damaged <i>")


async def test_entries_are_read_with_a_password(
    memory_cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    PasswordReads(monkeypatch)
    await memory_cluster.create(*bookies("abc"))
    await memory_cluster.add(open_ledger("abc"))
    async with open_console(WRITES) as (_, browser):
        await browser.log_in()
        text = await page(browser, "?from=3")
        assert 'name="password"' in text
        assert "payload" not in text.replace("Payload", "")
        token = re.findall(r'name="form_token" value="([0-9a-f]+)"', text)[-1]
        form = {"form_token": token, "from": "3", "as": "json"}
        with caplog.at_level(logging.DEBUG):
            refused = await browser.post("/ledgers/7", {**form, "password": "wrong"})
            answer = await browser.post("/ledgers/7", {**form, "password": "right"})
    assert "The bookies refused this password" in refused.text
    assert "&lt;b&gt;payload&lt;/b&gt;" in answer.text
    assert "Cut after 4,096 bytes." in answer.text
    assert "shown as text: not json, or too long for it." in answer.text
    assert "lost; accepted" in answer.text
    assert "entry 6 is damaged &lt;i&gt;" in answer.text
    assert 'value="right"' not in answer.text
    assert "right" not in caplog.text


async def test_a_console_that_only_shows_takes_no_password(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    PasswordReads(monkeypatch)
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(open_ledger("abc"))
    async with open_console(READ_ONLY) as (_, browser):
        text = await page(browser, "?from=3")
        assert 'name="password"' not in text
        assert "quire ledger read 7 --password-file FILE" in text
        assert (await browser.post("/ledgers/7", {"password": "right"})).status == 403
