"""Settings of tests: surroundings, markers by directory, leaks, Hypothesis without deadlines."""

import asyncio
import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.guide import GUIDES, Guide
from tests.leaks import Leaks
from tests.part import Part
from tests.surroundings import make_plain

MARKED_DIRECTORIES = ("tour", "integration", "spark", "campaign", "kafka", "browser")
FIRST = (
    "tour",
    "integration",
    "spark/test_deployment.py",
    "spark/day",
    "spark/test_recreated.py",
    "spark/test_streaming.py",
    "spark/test_standalone.py",
    "spark/test_commands.py",
    "spark/test_encrypted.py",
)
"""Files that take longest, and directories of such: several workers end at about the same time."""
TESTS = Path(__file__).parent

make_plain()

# Without a loop that was set, `asyncio.get_event_loop` makes one, which nothing closes: the warning
# then fails whichever test runs when it is collected.
asyncio.set_event_loop(None)

# No timed assertions: a busy machine must not fail a property. A failing example can be replayed.
settings.register_profile(
    "quire", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("few-examples", parent=settings.get_profile("quire"), max_examples=10)
settings.load_profile("quire")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the guide and of a part."""
    parser.addoption("--guide", choices=(*GUIDES, ""), default="", help="say at the end what ran")
    parser.addoption("--for-s", type=float, help="begin no test after so many seconds")
    parser.addoption("--order", default="0", help="with --for-s, any text: chooses the order")


def pytest_configure(config: pytest.Config) -> None:
    """Report what a test leaves behind, and at the end what ran."""
    config.pluginmanager.register(Leaks(), "leaks")
    config.pluginmanager.register(Guide(config.getoption("--guide")), "guide")
    if (seconds := config.getoption("--for-s")) is not None:
        config.pluginmanager.register(Part(seconds, config.getoption("--order")), "part")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/<marker>/ with that marker, before `-m` selects; put long files
    first.
    """
    items.sort(key=_rank)
    for item in items:
        directory = item.path.relative_to(TESTS).parts[0]
        if directory in MARKED_DIRECTORIES:
            item.add_marker(directory)


def _rank(item: pytest.Item) -> int:
    path = f"{item.path.relative_to(TESTS).as_posix()}/"
    ranks = (rank for rank, each in enumerate(FIRST) if path.startswith(f"{each}/"))
    return next(ranks, len(FIRST))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note how the run ended, next to what failed: tests.ci runs nothing again if it broke off."""
    cache = getattr(session.config, "cache", None)  # -p no:cacheprovider leaves it out
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("quire/status", int(exitstatus))


def pytest_collection_finish() -> None:
    """Keep the collected tests out of every later garbage collection: stories of simulated clusters
    collect when they end, and thousands of tests and modules would be searched each time.
    """
    gc.collect()
    gc.freeze()
