"""Names and payloads that are scripts if a page does not escape them."""

from urllib.parse import quote

from playwright.async_api import Browser

from tests.browser.hostile_names import HOSTILE, IMAGE, REVERSED, SCRIPT
from tests.browser.page_list import page_list
from tests.browser.running_console import RunningConsole
from tests.browser.sample_cluster import TOPIC, TRANSACTION, SampleCluster
from tests.browser.watched_page import watched_page


async def test_no_page_runs_them(
    browser: Browser, sample: SampleCluster, writing_console: RunningConsole
) -> None:
    groups = [f"/groups/{quote(each, safe='')}" for each in HOSTILE]
    queries = [quote(each) for each in HOSTILE]
    echoed = [
        address.format(query)
        for query in queries
        for address in (
            "/ledgers?from={}",
            "/if-lost?bookie={}",
            f"/topics/{TOPIC}/messages?key={{0}}&time=&form={{0}}&offset={{0}}",
            "/transactions?seconds={}",
        )
    ]
    async with watched_page(browser, writing_console) as window:
        await window.log_in()
        for address in (*(a for _, a in page_list(sample)), *groups):
            await window.open(address)
            await window.must_be_clean()
        for each in HOSTILE:
            name = quote(each, safe="")
            for address in (
                f"/bookies/{name}",
                f"/topics/{name}",
                f"/transactions/abort?id={name}",
            ):
                answer = await window.page.goto(writing_console.address + address)
                assert answer is not None
                assert answer.status in (404, 409), address
                await window.must_be_clean()
        for address in echoed:
            answer = await window.page.goto(writing_console.address + address)
            assert answer is not None
            assert answer.status == 400, address
            await window.must_be_clean()


async def test_they_are_shown_as_text(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.hostile}?from=0")
        text = await window.text()
        for each in (*HOSTILE, IMAGE, SCRIPT):
            assert each in text
        assert REVERSED not in text
        assert "safe\\u202etxt.exe" in text
        await window.open(f"/topics/{TOPIC}/messages?partition=2")
        text = " ".join((await window.text()).split())
        assert all(" ".join(each.split()) in text for each in HOSTILE)
        await window.open("/groups")
        text = await window.text()
        assert all(each in text for each in HOSTILE)
        await window.open("/transactions?seconds=0")
        assert TRANSACTION in await window.text()


async def test_a_violation_of_the_policy_is_noticed(
    browser: Browser, console: RunningConsole
) -> None:
    """The other tests of this file rely on it."""
    async with watched_page(browser, console) as window:
        await window.open("/")
        await window.page.evaluate(
            "document.querySelector('main').insertAdjacentHTML('beforeend', "
            "'<img src=/static/icon.svg onerror=alert(1) onload=alert(2)>')"
        )
        await window.page.wait_for_function("document.querySelector('main img').complete")
        assert any("Content Security Policy" in problem for problem in window.problems)
