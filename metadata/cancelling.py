"""Cancellation of tasks that belong to an object which ends.

Leaves the tasks' errors to the code that awaits their results.
"""

import asyncio
from typing import Any


async def cancel_and_wait(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel tasks and wait until all have ended; None stands for a task that was never started."""
    started = [task for task in tasks if task is not None]
    for future in started:
        future.cancel()
    await asyncio.gather(*started, return_exceptions=True)
