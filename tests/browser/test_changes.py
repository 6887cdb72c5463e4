"""Logins and changes in a browser, which sends cookies, origins and tokens of forms by itself."""

from playwright.async_api import Browser

from tests.browser.hostile_names import IMAGE
from tests.browser.running_console import RunningConsole
from tests.browser.sample_cluster import GROUP, TOPIC, SampleCluster
from tests.browser.watched_page import watched_page

REFUSED = 403


async def test_a_page_asks_for_a_login_and_comes_back(
    browser: Browser, writing_console: RunningConsole
) -> None:
    async with watched_page(browser, writing_console) as window:
        await window.open("/ledgers?from=3")
        assert await window.page.title() == "Log in · Quire"
        await window.page.fill("#token", "not the token")
        await window.page.keyboard.press("Enter")
        await window.page.get_by_role("alert").wait_for()
        await window.page.fill("#token", writing_console.token)
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url("**/ledgers?from=3")
        await window.page.get_by_role("button", name="Log out").click()
        await window.open("/")
        assert await window.page.title() == "Log in · Quire"
        await window.must_be_clean()


async def test_a_group_gets_new_offsets(
    browser: Browser, sample: SampleCluster, writing_console: RunningConsole
) -> None:
    del sample
    async with watched_page(browser, writing_console) as window:
        await window.log_in()
        await window.open(f"/groups/{GROUP}")
        await window.page.fill("#topic", TOPIC)
        await window.page.select_option("#to", "latest")
        await window.page.get_by_role("button", name="Show the plan").click()
        await window.page.get_by_role("button", name="Change the offsets").click()
        await window.page.wait_for_url(f"**/groups/{GROUP}")
        assert "0 records behind" in await window.text()
        await window.must_be_clean()


async def test_a_bookie_is_drained_with_a_hostile_reason(
    browser: Browser, sample: SampleCluster, writing_console: RunningConsole
) -> None:
    bookie = sample.cluster.bookies[3].id
    async with watched_page(browser, writing_console) as window:
        await window.log_in()
        await window.open(f"/bookies/{bookie}")
        await window.page.get_by_role("link", name="Drain").click()
        await window.page.fill("#reason", IMAGE)
        await window.page.get_by_role("button", name="Drain").click()
        await window.page.wait_for_url(f"**/bookies/{bookie}")
        text = await window.text()
        assert "draining" in text
        assert IMAGE in text
        await window.page.get_by_role("link", name="Use again").click()
        await window.page.get_by_role("button", name="Use again").click()
        await window.page.wait_for_url(f"**/bookies/{bookie}")
        await window.must_be_clean()


async def test_a_form_with_an_old_token_is_refused(
    browser: Browser, sample: SampleCluster, writing_console: RunningConsole
) -> None:
    del sample
    async with watched_page(browser, writing_console) as window:
        await window.log_in()
        await window.open("/repair")
        form = window.page.locator("form[action$='/repair/run']")
        await form.locator("[name=form_token]").evaluate("each => each.value = '00'")
        await form.locator("[name=ledger]").fill("1")
        async with window.page.expect_navigation() as loaded:
            await form.get_by_role("button").click()
        answer = await loaded.value
        assert answer is not None
        assert answer.status == REFUSED
        assert "load it again" in await window.text()


async def test_a_console_that_only_shows_has_no_forms_of_changes(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        for address in ("/repair", f"/bookies/{sample.cluster.bookies[0].id}", f"/groups/{GROUP}"):
            await window.open(address)
            assert await window.page.locator("form[method=post]").count() == 0
            assert "read-only" in await window.text()
