"""The one limit of waits in tests, and how to wait.

A test waits for an event, never for a time. The limit only names a test whose event never comes: no
verdict depends on it, so that it is far above what a busy machine needs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

WAIT_S: Final = 120.0
"""Less than the timeout of a test, so that the test fails here, by name, and cleans up."""
LOOK_S: Final = 0.002

ResultT = TypeVar("ResultT")


async def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Let the loop run until a condition is true; fail the test if it is not true in time."""
    end = asyncio.get_running_loop().time() + wait_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not so after {wait_s} s"
        await asyncio.sleep(LOOK_S)


async def until_closed() -> None:
    """Let a loop of asyncio run until it has no connection, for clients that close theirs without
    waiting for the end.
    """
    loop = asyncio.get_running_loop()
    await until(lambda: len(loop._selector.get_map()) <= 1)  # type: ignore[attr-defined]


async def within(awaited: Awaitable[ResultT], wait_s: float = WAIT_S) -> ResultT:
    """Return the result of an awaitable; fail the test if it does not come in time."""
    limit = asyncio.timeout(wait_s)
    try:
        async with limit:
            return await awaited
    except TimeoutError:
        assert not limit.expired(), f"no result after {wait_s} s"
        raise
