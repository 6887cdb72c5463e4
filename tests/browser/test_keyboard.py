"""The console by keyboard alone."""

from playwright.async_api import Browser

from tests.browser.running_console import RunningConsole
from tests.browser.sample_cluster import SampleCluster
from tests.browser.watched_page import WatchedPage, watched_page

FOCUSED = "document.activeElement"
LABEL = f"{FOCUSED}.getAttribute('aria-label') ?? {FOCUSED}.textContent.trim()"
AT = f"[{FOCUSED}.dataset.row, {FOCUSED}.dataset.column].map(Number)"
IN_MAP = f"{FOCUSED}.closest('svg[data-walk]') !== null"
TABS_MAX = 60


async def tab_to(window: WatchedPage, condition: str) -> int:
    """Press the tab key until a condition holds; return how often."""
    for count in range(1, TABS_MAX):
        await window.page.keyboard.press("Tab")
        if await window.page.evaluate(condition):
            return count
    raise AssertionError(f"{condition} was not reached")


async def test_the_first_stop_skips_the_navigation(
    browser: Browser, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open("/")
        await window.page.keyboard.press("Tab")
        assert await window.page.evaluate(LABEL) == "Skip to the content"
        assert await window.page.locator(".skip").is_visible()
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url("**/#main")
        await window.page.keyboard.press("Tab")
        assert await window.page.evaluate(f"{FOCUSED}.closest('main') !== null")


async def test_stops_are_in_the_order_of_the_page(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.changed}")
        names = list[str]()
        for _ in range(8):
            await window.page.keyboard.press("Tab")
            names.append(await window.page.evaluate(LABEL))
            width = await window.page.evaluate(f"getComputedStyle({FOCUSED}).outlineWidth")
            assert width == "3px", names
        assert names[1:] == ["Quire", "Cluster", "Ledgers", "Chains", "Repair", "Topics", "Groups"]


async def test_the_map_is_walked_by_arrow_keys(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.changed}")
        await tab_to(window, IN_MAP)
        assert await window.page.evaluate(AT) == [0, 0]
        assert "fragment 0" in await window.page.evaluate(LABEL)
        visited = list[list[int]]()
        for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp"):
            await window.page.keyboard.press(key)
            visited.append(await window.page.evaluate(AT))
        assert visited[0] == [1, 0]
        assert visited[1] == [1, 1]
        assert visited[-1] == [0, 0]
        await window.page.keyboard.press("Tab")  # the map is one stop
        assert not await window.page.evaluate(IN_MAP)
        await window.page.keyboard.press("Shift+Tab")
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url("**fragment=0#fragment")
        await window.must_be_clean()


async def test_a_table_is_opened_by_keyboard(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.changed}")
        await tab_to(window, f"{FOCUSED}.tagName === 'SUMMARY'")
        await window.page.keyboard.press("Enter")
        assert await window.page.locator("details[open] table").first.is_visible()
