"""Wait for conditions that no event reports."""

import asyncio
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 30.0
"""Less than the timeout of a test, so that the test fails here, by name, and cleans up."""
LOOK_S: Final = 0.002


async def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Let the loop run until a condition is true; fail the test if it is not true in time."""
    end = asyncio.get_running_loop().time() + wait_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not so after {wait_s} s"
        await asyncio.sleep(LOOK_S)
