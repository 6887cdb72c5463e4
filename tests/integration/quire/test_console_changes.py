"""Bookies are drained and lost, and a group's offsets are changed, by the console alone.

Everything is a real process: bookies, brokers, and the console.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import ClientSession, CookieJar
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from tests.integration.quire.command import RunningCluster, start_cluster
from tests.support.quire.console import Answer, Browser
from tests.until import WAIT_S

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("cluster"), bookies=5, brokers=1)
    yield running
    running.stop()


@pytest.fixture
async def browser(cluster: RunningCluster) -> AsyncIterator[Browser]:
    """Start a console that allows changes, and log in."""
    process = cluster.start("console", "--port", "0", "--allow-writes")
    assert process.stdout is not None
    told = json.loads(await asyncio.to_thread(process.stdout.readline))
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
            running = Browser(told["address"], told["login_token"], session)
            assert (await running.log_in()).status == 303
            yield running
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate)


async def page_with(browser: Browser, path: str, text: str) -> Answer:
    """Load a page until it shows a text."""
    async with asyncio.timeout(WAIT_S):
        while text not in (answer := await browser.get(path)).text:  # noqa: ASYNC110 - each try is a request
            await asyncio.sleep(0.2)
    return answer


async def change(browser: Browser, bookie: str, act: str) -> None:
    """Change a bookie by its page of confirmation."""
    page = await browser.get(f"/bookies/{bookie}/change?act={act}")
    assert page.status == 200, page.text
    form = {"form_token": page.form_token, "act": act, "reason": "a test"}
    answer = await browser.post(f"/bookies/{bookie}/change", form)
    assert answer.status == 303, answer.text


async def test_a_bookie_is_drained_and_removed(cluster: RunningCluster, browser: Browser) -> None:
    words = ("ledger", "append", "--ensemble", "3", "--write", "3", "--ack", "2")
    bookie = cluster.told["bookies"][0]["id"]
    async with asyncio.timeout(WAIT_S):
        while "99 of 100 syncs" not in (await browser.get(f"/bookies/{bookie}")).text:
            # A bookie shows the syncs of the last ten seconds.
            await asyncio.to_thread(cluster.json, *words, stdin=b"one\n")
    await change(browser, bookie, "read-only")
    await page_with(browser, f"/bookies/{bookie}", "act=writable")
    await change(browser, bookie, "writable")
    await change(browser, bookie, "drain")
    await page_with(browser, f"/bookies/{bookie}", '<span class="state drained">')
    await page_with(browser, f"/bookies/{bookie}/change?act=remove", "No ledger names it")
    await change(browser, bookie, "remove")
    assert "removed" in (await browser.get(f"/bookies/{bookie}")).text


async def test_a_lost_bookie_from_the_alert_to_health(
    cluster: RunningCluster, browser: Browser
) -> None:
    await asyncio.to_thread(cluster.json, "repair", "settings", "lost_after_s=2")
    words = ("ledger", "append", "--ensemble", "3", "--write", "3", "--ack", "2")
    for _ in range(5):
        await asyncio.to_thread(cluster.json, *words, stdin=b"one\n")
    lost = cluster.told["bookies"][1]
    os.kill(lost["pid"], signal.SIGKILL)
    bookie = lost["id"]
    await page_with(browser, "/", f"bookie {bookie}")
    await page_with(browser, f"/bookies/{bookie}", '<span class="state lost">')
    assert f'href="/bookies/{bookie}"' in (await browser.get("/repair")).text
    await page_with(browser, f"/bookies/{bookie}/change?act=remove", "No ledger names it")
    await change(browser, bookie, "remove")
    await page_with(browser, "/", "Healthy")


async def test_the_offsets_of_a_group_are_changed(
    cluster: RunningCluster, browser: Browser
) -> None:
    await asyncio.to_thread(cluster.json, "topic", "create", "orders", "--partitions", "1")
    lines = b"".join(b"%d\n" % number for number in range(10))
    await asyncio.to_thread(cluster.json, "topic", "produce", "orders", stdin=lines)
    address = cluster.told["brokers"][0]["address"]
    await asyncio.to_thread(commit, address, 4)
    assert "6 records behind" in (await browser.get("/groups/readers")).text
    page = await browser.get("/groups/readers/reset?topic=orders&to=earliest")
    form = {"form_token": page.form_token, "offset:0:orders": "0"}
    answer = await browser.post("/groups/readers/reset", form)
    assert answer.status == 303, answer.text
    assert "10 records behind" in (await browser.get("/groups/readers")).text
    assert 'href="/groups/readers"' in (await browser.get("/topics/orders")).text
    assert "<pre" in (await browser.get("/topics/orders/messages")).text


def commit(address: str, offset: int) -> None:
    """Commit an offset of a group, and leave it."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id="readers")
    place = TopicPartition("orders", 0)
    consumer.assign([place])
    consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
    consumer.close(autocommit=False)
