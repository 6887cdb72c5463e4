"""Pages of a cluster and its ledgers, over metadata in memory."""

import asyncio
import html
import re
from dataclasses import replace

import pytest

from metadata.repair.lifecycle import Lifecycle
from quire.console.options import ConsoleOptions
from quire.console.pages import ledger_page
from quire.console.templating import ROWS_PER_PAGE
from tests.support.quire.console import Browser, open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0)


async def first_check(browser: Browser) -> str:
    """Return the page of the cluster after the first check."""
    while "first check" in (text := (await browser.get("/")).text):  # noqa: ASYNC110 - each try is a request
        await asyncio.sleep(0.01)
    return text


async def test_problems_are_shown_with_what_to_do(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(closed_ledger("abc", ledger_id=7))
    await memory_cluster.stop("b")
    await memory_cluster.set_state("c", Lifecycle.DRAINING)
    async with open_console(OPTIONS) as (_, browser):
        text = await first_check(browser)
    assert "bookie b" in text
    assert "start it" in text
    assert '<span class="state down">down</span>' in text
    assert '<span class="state draining">draining</span>' in text


async def test_what_a_loss_would_take(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c", "d")
    await memory_cluster.add(closed_ledger("abc", ledger_id=7), closed_ledger("bca", ledger_id=8))
    async with open_console(OPTIONS) as (_, browser):
        await first_check(browser)
        text = (await browser.get("/if-lost?bookie=d")).text
        assert "All 2 ledgers keep" in text
        text = (await browser.get("/if-lost?bookie=a&bookie=b")).text
        assert "may be unreadable" in text
        assert 'value="a" checked' in text


async def test_ledgers_are_listed_page_by_page(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    for number in range(ROWS_PER_PAGE):
        await memory_cluster.add(closed_ledger("abc", ledger_id=3 * number))
    await memory_cluster.add(open_ledger("abc", ledger_id=5_000))
    async with open_console(OPTIONS) as (_, browser):
        text = (await browser.get("/ledgers")).text
        assert text.count('class="state closed"') == ROWS_PER_PAGE
        assert "/ledgers?from=5000" in text
        text = (await browser.get("/ledgers?from=5000")).text
        assert text.count('class="state open"') == 1
        assert 'rel="next"' not in text
        for odd in ("-1", "x", "9" * 30, "%00"):
            assert (await browser.get(f"/ledgers?from={odd}")).status == 400


async def test_ledgers_are_found_by_their_metadata(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_page, "SEARCHED_MAX", ROWS_PER_PAGE + 10)
    await memory_cluster.create("a", "b", "c")
    for number in range(ROWS_PER_PAGE + 20):
        custom = {"job": "a=b" if number % 40 == 7 else b"other", "n": str(number)}
        ledger = replace(closed_ledger("abc", ledger_id=number), custom=custom)
        await memory_cluster.add(ledger)
    async with open_console(OPTIONS) as (_, browser):
        text = (await browser.get("/ledgers?metadata=job%3Da%3Db")).text
        assert re.findall(r'href="/ledgers/(\d+)"', text) == ["7", "47", "87"]
        assert "3 ledgers found among 110 ledgers" in text
        assert "/ledgers?from=110&metadata=job%3Da%3Db" in html.unescape(text)
        text = (await browser.get("/ledgers?from=110&metadata=job%3Dother")).text
        assert "10 ledgers found among 10 ledgers" in text
        assert 'rel="next"' not in text
        text = (await browser.get("/ledgers?metadata=job")).text
        assert f"{ROWS_PER_PAGE} ledgers found among" in text
        text = (await browser.get("/ledgers?metadata=%3Cscript%3E%3D")).text
        assert "No ledger was found" in text
        assert "<script>=" not in text
        assert "?metadata=n%3D7" in (await browser.get("/ledgers/7")).text


async def test_copies_are_said_alike_in_list_and_page(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(closed_ledger("abc", ledger_id=7))
    await memory_cluster.stop("b")
    async with open_console(OPTIONS) as (_, browser):
        for path in ("/ledgers", "/ledgers/7"):
            assert "<td>1 certain, 2 at most" in (await browser.get(path)).text


async def test_an_empty_cluster(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    async with open_console(OPTIONS) as (_, browser):
        await first_check(browser)
        assert "There is no ledger" in (await browser.get("/ledgers")).text
        assert (await browser.get("/if-lost")).status == 200
