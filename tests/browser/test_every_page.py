"""Every page of the console: accessible, readable in narrow windows, and without scripts."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from quire.console.context import ConsoleContext
from quire.console.guard import Guard
from quire.console.server import routes
from tests.browser.page_list import NOT_HTML, page_list
from tests.browser.running_console import RunningConsole
from tests.browser.sample_cluster import TOPIC, SampleCluster
from tests.browser.watched_page import WIDE, Scheme, watched_page

NARROW = (320, 640)
"""Reflow of WCAG 1.4.10: as wide as a window of 1280 pixels at a zoom of 400 %."""
TELEPHONE = (390, 844)
SCROLLED_TABLES = """() => [...document.querySelectorAll('.wide:has(thead)')]
  .filter((wide) => wide.checkVisibility() && wide.scrollWidth > wide.clientWidth)
  .map((wide) => wide.outerHTML.slice(0, 100))"""
FIRST_LABELS = """() => [...document.querySelector('table.blocks tbody tr').cells]
  .map((cell) => cell.dataset.label)"""
ROW_HEADER_WIDTHS = """() => [...document.querySelectorAll('table.blocks tbody th')]
  .filter((cell) => cell.checkVisibility()).map((cell) => cell.offsetWidth)"""
SERIOUS = ("serious", "critical")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
TARGET_PIXELS = 24
"""Size of targets, WCAG 2.5.8."""
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
CUT_TEXTS = """() => [...document.querySelectorAll('h1, h2, p, a, button, label, th, td')]
  .filter((each) => !each.closest('.wide, .tail, .skip, noscript, details:not([open])'))
  .filter((each) => !each.matches('.skip') && each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 100))"""


async def findings_of(page: Page, what: str) -> list[str]:
    """Return the serious findings of axe in a page."""
    found = (await Axe().run(page, options=RULES)).response
    assert found["passes"], "axe has looked at nothing"
    return [
        f"{what}: {each['id']} ({each['impact']}): {node['html'][:120]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", NARROW)], ids=str
)
async def test_pages_are_accessible(
    browser: Browser,
    sample: SampleCluster,
    writing_console: RunningConsole,
    scheme: Scheme,
    size: tuple[int, int],
) -> None:
    findings = list[str]()
    async with watched_page(browser, writing_console, scheme=scheme, size=size) as window:
        await window.log_in()
        for _, address in page_list(sample):
            await window.open(address)
            for details in await window.page.query_selector_all("details:not([open]) > summary"):
                await details.click()
            findings += await findings_of(window.page, address)
            scrolled, shown = await window.page.evaluate(WIDTHS)
            if scrolled > shown:
                findings.append(f"{address} is {scrolled} pixels wide in a window of {shown}")
            findings += [f"{address}: cut {each}" for each in await window.page.evaluate(CUT_TEXTS)]
        assert findings == []
        await window.must_be_clean()


async def test_tables_fit_a_telephone(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console, size=TELEPHONE) as window:
        for address in (
            "/",
            "/ledgers",
            f"/topics/{TOPIC}",
            f"/topics/{TOPIC}/messages?partition=2",
        ):
            await window.open(address)
            await window.page.wait_for_selector("table.blocks")
            assert await window.page.evaluate(SCROLLED_TABLES) == [], address
            widths = await window.page.evaluate(ROW_HEADER_WIDTHS)
            assert min(widths) > TELEPHONE[0] / 2, address
            labels = await window.page.evaluate(FIRST_LABELS)
            assert labels[0] == await window.page.locator("thead th").first.text_content()
        await window.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        await window.page.wait_for_selector("table.blocks", state="detached")
        await window.must_be_clean()


async def test_pages_without_scripts(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console, scripts=False) as window:
        for _, address in page_list(sample):
            await window.open(address)
            assert await window.page.locator("h1").count() == 1, address
            for hidden in await window.page.locator("[data-live], [data-tail]").all():
                assert not await hidden.is_visible()
        await window.open("/if-lost")
        await window.page.check("input[type=checkbox] >> nth=0")
        await window.page.click("main button")
        await window.page.wait_for_url("**/if-lost?bookie=*")
        assert "With 1 bookie lost" in await window.text()


async def test_pages_with_errors_are_accessible(browser: Browser, console: RunningConsole) -> None:
    async with watched_page(browser, console) as window:
        for address in ("/nothing-here", "/ledgers/999999", "/groups/none", "/topics/none"):
            await window.open(address, status=404)
            assert await findings_of(window.page, address) == []


async def test_the_list_of_pages_is_complete(sample: SampleCluster) -> None:
    listed = {route for route, _ in page_list(sample)} | set(NOT_HTML)
    context, guard = object.__new__(ConsoleContext), object.__new__(Guard)
    served = {route.path for route in routes(context, guard) if route.method == "GET"}
    assert served - {"/{rest:.*}"} - listed == set()


async def test_each_drawing_has_its_table(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.short}?fragment=0")
        drawings = window.page.locator("svg[role=img], svg[role=group]")
        tables = window.page.locator("details:has(summary:text-is('Show as table'))")
        count = await drawings.count()  # three, and the latency of appends once it is known
        assert count == await tables.count() >= 3
        for number in range(count):
            name = await drawings.nth(number).get_attribute("aria-labelledby")
            assert name
            details = tables.nth(number)
            await details.locator("summary").click()
            assert await details.locator("tbody tr").count() >= 1
        text = await window.text()
        assert "at the ack quorum only" in text
        assert "missing 100 of 1,000" in text


async def test_patterns_differ_without_colours(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.short}")
        lines = await window.page.eval_on_selector_all(
            "pattern", "all => all.map((each) => each.querySelector('path').getAttribute('d'))"
        )
        assert len(lines) == len(set(lines)) >= 6


async def test_targets_are_large_enough(
    browser: Browser, sample: SampleCluster, console: RunningConsole
) -> None:
    async with watched_page(browser, console) as window:
        await window.open(f"/ledgers/{sample.short}?fragment=0")
        small = list[str]()
        for each in await window.page.locator("button, input, select, summary, nav a").all():
            box = await each.bounding_box()
            if box is not None and min(box["height"], box["width"]) < TARGET_PIXELS:
                small.append(await each.evaluate("each => each.outerHTML"))
        assert small == []
