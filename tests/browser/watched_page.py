"""One page of the browser, with what went wrong in it.

Leaves what should be on the page to the tests.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Response

from tests.browser.chromium import MS_PER_S, STEP_S_MAX
from tests.browser.hostile_names import MARK
from tests.browser.running_console import RunningConsole

Scheme = Literal["light", "dark"]
WIDE: Final = (1280, 800)
OK: Final = 200
EXPECTED: Final = "Failed to load resource: the server responded with a status of"
"""Remark of the browser about each answer that is an error, also one that a test wants."""


@dataclass(slots=True)
class WatchedPage:
    """A page, and what the browser complained of."""

    page: Page
    console: RunningConsole
    problems: list[str] = field(default_factory=list)
    """Dialogs, errors of scripts, and violations of the content security policy."""

    async def open(self, path: str, status: int = OK) -> Response:
        """Load a page of the console, which must have a status."""
        answer = await self.page.goto(self.console.address + path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status}"
        return answer

    async def text(self) -> str:
        """Return the text that a person sees."""
        return await self.page.inner_text("body")

    async def log_in(self) -> None:
        """Log in by the form."""
        await self.open("/login")
        await self.page.fill("#token", self.console.token)
        await self.page.click("main button")
        await self.page.wait_for_url(self.console.address + "/")

    async def must_be_clean(self) -> None:
        """Assert that nothing ran that is no script of the console, and nothing was refused."""
        assert self.problems == []
        assert not await self.page.evaluate(f"'{MARK}' in window")

    def watch(self) -> None:
        """Collect problems from now on."""

        async def refuse(dialog: Dialog) -> None:
            self.problems.append(f"dialog: {dialog.message}")
            await dialog.dismiss()

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
                self.problems.append(f"{message.type}: {message.text}")

        self.page.on("dialog", refuse)
        self.page.on("console", note)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))


@asynccontextmanager
async def watched_page(
    browser: Browser,
    console: RunningConsole,
    *,
    scheme: Scheme = "light",
    scripts: bool = True,
    size: tuple[int, int] = WIDE,
) -> AsyncIterator[WatchedPage]:
    """Open a window of its own, without cookies of others."""
    viewport: Mapping[str, int] = {"width": size[0], "height": size[1]}
    context = await browser.new_context(
        color_scheme=scheme,
        java_script_enabled=scripts,
        viewport={"width": viewport["width"], "height": viewport["height"]},
        reduced_motion="reduce",
    )
    context.set_default_timeout(STEP_S_MAX * MS_PER_S)
    try:
        found = WatchedPage(await context.new_page(), console)
        found.watch()
        yield found
    finally:
        await context.close()
