"""Settings of tests: surroundings, markers by directory, leaks, Hypothesis without deadlines."""

import asyncio
import gc
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

from tests.leaks import Leaks
from tests.surroundings import make_plain

MARKED_DIRECTORIES = ("integration", "spark", "campaign", "kafka", "browser")
LONG = ("long", "spark")
"""Markers of the tests of which --one-in takes a part."""
SPARK_TIMEOUT_S = 180
"""Tests of these share a Java process and a cluster; if one is stopped, all that follow fail."""
TESTS = Path(__file__).parent

make_plain()

# Without a loop that was set, `asyncio.get_event_loop` makes one, which nothing closes: the warning
# then fails whichever test runs when it is collected.
asyncio.set_event_loop(None)

# No timed assertions: a busy machine must not fail a property. A failing example can be replayed.
settings.register_profile("quire", deadline=None, print_blob=True)
settings.load_profile("quire")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that take a part of the tests that take long."""
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        help="take one in N of the files with tests that are `long` or need Spark",
    )
    parser.addoption("--chosen-by", default="", help="text that chooses the files of --one-in")


def pytest_configure(config: pytest.Config) -> None:
    """Report what a test leaves behind."""
    config.pluginmanager.register(Leaks(), "leaks")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything under tests/<marker>/ with that marker, before `-m` selects; leave out what
    --one-in does not take.
    """
    for item in items:
        directory = item.path.relative_to(TESTS).parts[0]
        if directory in MARKED_DIRECTORIES:
            item.add_marker(directory)
        if directory == "spark" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
    left_out = [item for item in items if not _is_taken(config, item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_taken(config, item)]


def pytest_collection_finish() -> None:
    """Keep the collected tests out of every later garbage collection: stories of simulated clusters
    collect when they end, and thousands of tests and modules would be searched each time.
    """
    gc.collect()
    gc.freeze()


def _is_taken(config: pytest.Config, item: pytest.Item) -> bool:
    if not any(item.get_closest_marker(each) for each in LONG):
        return True
    file = item.path.relative_to(TESTS).as_posix()
    one_in, chosen_by = int(config.getoption("--one-in")), config.getoption("--chosen-by")
    return zlib.crc32(f"{chosen_by} {file}".encode()) % one_in == 0
