"""Waits for what announces itself in no other way."""

import asyncio
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 30.0
"""Below what a test may take, so that it fails here, by name, and ends what it began."""
LOOK_S: Final = 0.002


async def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Let the loop run until something is so; what is not so in time fails the test."""
    end = asyncio.get_running_loop().time() + wait_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not so after {wait_s} s"
        await asyncio.sleep(LOOK_S)
