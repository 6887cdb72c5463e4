"""The browser of these tests: Chromium of the system, headless.

Leaves what a test does with it to the tests.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Browser

PATH_VARIABLE: Final = "CHROMIUM"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS: Final = ("--disable-quic", "--disable-background-networking", "--disable-gpu")
START_S_MAX: Final = 90.0
STEP_S_MAX: Final = 60.0
"""Time for one step in a page, on a busy machine."""
MS_PER_S: Final = 1_000
ROOT: Final = 0


def chromium_path() -> str | None:
    """Return the path of Chromium; None if the system has none."""
    found = os.environ.get(PATH_VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    return found if found and shutil.which(found) else None


@asynccontextmanager
async def open_chromium(path: str) -> AsyncIterator["Browser"]:
    """Start a browser without a window."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - in an extra of its own

    # Chromium refuses to make its sandbox as root, as whom containers run tests.
    sandbox = ("--no-sandbox",) if os.geteuid() == ROOT else ()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            args=[*ARGUMENTS, *sandbox],
            timeout=START_S_MAX * MS_PER_S,
        )
        try:
            yield browser
        finally:
            await browser.close()
