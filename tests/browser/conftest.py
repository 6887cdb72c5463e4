"""Browser, clusters and consoles of these tests. All tests share one event loop."""

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from quire.bench.comparison import write_run
from quire.bench.results import Cell, FailedRun
from tests.browser.chromium import PATH_VARIABLE, chromium_path, open_chromium
from tests.browser.hostile_names import HOSTILE
from tests.browser.page_list import REPORT
from tests.browser.running_console import RunningConsole, running_console
from tests.browser.sample_cluster import SampleCluster, sample_cluster
from tests.support.quire.compare.samples import run_of

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


@pytest.fixture(scope=SESSION)
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with one report, in which a run failed."""
    directory = tmp_path_factory.mktemp("reports")
    for number in range(2):
        write_run(directory / REPORT, run_of(repetition=number))
    write_run(directory / REPORT, FailedRun(Cell("fixed-2", "steady", 5.0, 0), HOSTILE[0]))
    return directory


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def console(sample: SampleCluster, reports: Path) -> AsyncIterator[RunningConsole]:
    """Start a console that only shows."""
    uri = sample.cluster.metadata_uri
    async with running_console(uri, "--reports", str(reports)) as running:
        yield running


@pytest_asyncio.fixture(scope=SESSION, loop_scope=SESSION)
async def writing_console(sample: SampleCluster, reports: Path) -> AsyncIterator[RunningConsole]:
    """Start a console that allows changes, and needs a login."""
    options = ("--allow-writes", "--reports", str(reports))
    async with running_console(sample.cluster.metadata_uri, *options) as running:
        yield running
