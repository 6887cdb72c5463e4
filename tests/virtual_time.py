"""Tests in virtual time: their sleeps take no time, and a busy machine cannot delay one of two."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.loop import run_simulation


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test, which does no input or output, on the simulation's loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        run_simulation(lambda: test(*arguments, **fixtures), seed=0)

    return run
