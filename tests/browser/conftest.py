"""Browser, clusters and consoles of these tests. All tests share one event loop."""

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from tests.browser.chromium import PATH_VARIABLE, chromium_path, open_chromium
from tests.browser.running_console import RunningConsole, running_console
from tests.browser.sample_cluster import SampleCluster, sample_cluster

if TYPE_CHECKING:
    from playwright.async_api import Browser

# Playwright is large, and in an extra of its own, which `make test-browser` installs.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]

SESSION: Final = "session"
TIMEOUT_S = 600
"""A guard against hangs: the first test waits for the cluster to start and to fill."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this folder in the loop of the browser and the cluster."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.asyncio(loop_scope=SESSION), append=False)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def browser() -> AsyncIterator["Browser"]:
    path = chromium_path()
    if path is None:
        pytest.skip(f"no Chromium: install the package chromium, or set {PATH_VARIABLE}")
    async with open_chromium(path) as running:
        yield running


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def sample(browser: "Browser") -> AsyncIterator[SampleCluster]:
    del browser  # without a browser no cluster is started
    async with sample_cluster() as running:
        yield running


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def console(sample: SampleCluster) -> AsyncIterator[RunningConsole]:
    """Start a console that only shows."""
    async with running_console(sample.cluster.metadata_uri) as running:
        yield running


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def writing_console(sample: SampleCluster) -> AsyncIterator[RunningConsole]:
    """Start a console that allows changes, and needs a login."""
    async with running_console(sample.cluster.metadata_uri, "--allow-writes") as running:
        yield running
