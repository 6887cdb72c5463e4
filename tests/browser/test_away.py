"""ZooKeeper is away, and a bookie hangs, while the console runs."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from ledger_client import LedgerClient, Quorum
from quire.console.context import PAGE_S_MAX
from quire.local_cluster import LocalCluster
from tests.browser.chromium import MS_PER_S
from tests.browser.running_console import RunningConsole, running_console
from tests.browser.watched_page import WatchedPage, watched_page
from tests.support.pausing import paused

NO_CONNECTION = "There is no connection to the metadata service."
PAGE_MS_MAX = 3 * PAGE_S_MAX * MS_PER_S
"""Each answer has PAGE_S_MAX in the console; the rest is the browser's, on a busy machine."""
STATUSES = (200, 503)
RETURN_S = 120.0


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(browser: Browser) -> AsyncIterator[LocalCluster]:
    del browser  # without a browser no cluster is started
    async with LocalCluster(bookies=3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def shown(cluster: LocalCluster) -> AsyncIterator[RunningConsole]:
    async with running_console(cluster.metadata_uri, "--survey-every-s", "1") as running:
        yield running


async def written(cluster: LocalCluster) -> int:
    """Return a ledger that is on all bookies."""
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        client.create_ledger(Quorum(3, 3, 3)) as ledger,
    ):
        await ledger.append(b"one")
    return ledger.id


async def status_of(window: WatchedPage, address: str) -> int:
    answer = await window.page.goto(window.console.address + address, timeout=PAGE_MS_MAX)
    assert answer is not None
    return answer.status


async def open_until(window: WatchedPage, address: str, text: str) -> None:
    """Load a page until it shows a text."""
    for _ in range(int(RETURN_S)):
        await status_of(window, address)
        if text in await window.text():
            return
        await window.page.wait_for_timeout(MS_PER_S)
    raise AssertionError(f"{address} does not show {text!r}: {await window.text()}")


async def test_zookeeper_is_away(
    browser: Browser, cluster: LocalCluster, shown: RunningConsole
) -> None:
    ledger, bookie = await written(cluster), cluster.bookies[0].id
    ledger_pages = ("/ledgers", f"/ledgers/{ledger}", "/repair", "/repair/jobs")
    topic_pages = ("/topics", "/groups", "/transactions?seconds=0")
    pages = ("/", "/if-lost", f"/bookies/{bookie}", *ledger_pages, *topic_pages)
    async with watched_page(browser, shown) as window:
        await open_until(window, "/", "Healthy")
        cluster.zookeeper.kill()
        await open_until(window, "/", NO_CONNECTION)
        for address in pages:
            assert await status_of(window, address) in STATUSES, address
            text = await window.text()
            assert NO_CONNECTION in text, address
            assert "Traceback" not in text
            assert await window.page.locator("h1").count() == 1
        await cluster.zookeeper.start()
        await open_until(window, "/", "Healthy")
        await open_until(window, f"/ledgers/{ledger}", "1 entry is on all of the write quorum.")
        assert NO_CONNECTION not in await window.text()
        await window.must_be_clean()


async def test_a_bookie_hangs(
    browser: Browser, cluster: LocalCluster, shown: RunningConsole
) -> None:
    ledger, hung = await written(cluster), cluster.bookies[0]
    async with watched_page(browser, shown) as window:
        await open_until(window, f"/ledgers/{ledger}", "1 entry is on all")
        with paused(hung.pid):
            await open_until(window, f"/ledgers/{ledger}", f"{hung.id}: it ")
            assert "2 of 3 copies on the bookies that answered" in await window.text()
            assert await status_of(window, f"/ledgers/{ledger}?from=0&fragment=0") == 200
            assert "one" in await window.page.locator("pre.payload").all_inner_texts()
            assert await status_of(window, f"/bookies/{hung.id}") == 200
            text = await window.text()  # after its session has ended, it is not up
            assert "own figures are missing" in text or "It is not up" in text
            for address in ("/", "/ledgers", "/repair"):
                assert await status_of(window, address) == 200
        await open_until(window, f"/ledgers/{ledger}", "1 entry is on all of the write quorum.")
        await window.must_be_clean()
