"""Settings of all tests: markers by directory, Hypothesis without deadlines, kept bytecode."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

MARKED_DIRECTORIES = ("integration", "spark", "campaign", "kafka", "browser")
SPARK_TIMEOUT_S = 180
"""Tests of these share a Java process and a cluster; if one is stopped, all that follow fail."""
TESTS = Path(__file__).parent

# Some systems set this for all processes. Tests start thousands of processes, and each would
# compile the product again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Without a loop that was set, `asyncio.get_event_loop` makes one, which nothing closes: the warning
# then fails whichever test runs when it is collected.
asyncio.set_event_loop(None)

# No timed assertions: a busy machine must not fail a property. A failing example can be replayed.
settings.register_profile("quire", deadline=None, print_blob=True)
settings.load_profile("quire")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/<marker>/ with that marker, before `-m` selects."""
    for item in items:
        directory = item.path.relative_to(TESTS).parts[0]
        if directory in MARKED_DIRECTORIES:
            item.add_marker(directory)
        if directory == "spark" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
