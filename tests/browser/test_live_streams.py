"""New entries and messages as they come, which the browser follows."""

import asyncio

from kafka import KafkaProducer
from playwright.async_api import Browser

from ledger_client import LedgerClient, Quorum
from tests.browser.hostile_names import IMAGE
from tests.browser.running_console import RunningConsole
from tests.browser.sample_cluster import TOPICS, SampleCluster
from tests.browser.watched_page import watched_page

TOPIC = TOPICS[2]


async def test_a_tail_follows_pauses_and_continues(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with (
        watched_page(browser, console) as window,
        LedgerClient(sample.cluster.metadata_uri) as client,
    ):
        async with client.create_ledger(Quorum(3, 2, 2)) as ledger:
            await ledger.append(b"before")
            await window.open(f"/ledgers/{ledger.id}")
            entries = window.page.locator("[data-tail-list] li")
            await window.page.get_by_role("button", name="Follow").click()
            await entries.filter(has_text="0: before").wait_for()
            await ledger.append(IMAGE.encode())
            await entries.filter(has_text=f"1: {IMAGE}").wait_for()
            await window.page.get_by_role("button", name="Pause").click()
            assert "Paused." in await window.text()
            await ledger.append(b"while it pauses")
            await window.page.get_by_role("button", name="Continue").click()
            await entries.filter(has_text="2: while it pauses").wait_for()
            assert await entries.count() == 3
        await window.page.get_by_text("The ledger is closed: its last entry is 2.").wait_for()
        await window.must_be_clean()


async def test_new_messages_are_added_to_the_table(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    producer = KafkaProducer(bootstrap_servers=sample.brokers)
    try:
        async with watched_page(browser, console) as window:
            await window.open(f"/topics/{TOPIC}/messages?partition=0")
            rows = window.page.locator("[data-live] tbody tr")
            # A stream begins at the end that the partition has when its answer begins.
            async with window.page.expect_response("**/live?*"):
                await window.page.get_by_role("button", name="Show new messages").click()
            await _send(producer, b"first")
            await rows.filter(has_text="first").first.wait_for()
            await window.page.get_by_role("button", name="Pause").click()
            assert "Paused." in await window.text()
            await _send(producer, b"second")
            async with window.page.expect_response("**/live?*"):
                await window.page.get_by_role("button", name="Show new messages").click()
            await _send(producer, IMAGE.encode())
            await rows.filter(has_text=IMAGE).wait_for()
            assert await rows.filter(has_text="second").count() == 0
            await window.must_be_clean()
    finally:
        await asyncio.to_thread(producer.close)


async def _send(producer: KafkaProducer, value: bytes) -> None:
    await asyncio.to_thread(producer.send(TOPIC, value, key=b"key", partition=0).get, timeout=60)
