"""Background tasks of one object, kept alive until they end and cancelled together.

Leaves their errors to the loop's exception handler: a task that fails is a bug, not a condition.
"""

import asyncio
from collections.abc import Coroutine

from metadata.cancelling import cancel_and_wait


class BackgroundTasks:
    """Background tasks that belong to one object."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run `work` in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def aclose(self) -> None:
        """Cancel the running tasks and wait for them."""
        await cancel_and_wait(*self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            loop = task.get_loop()
            loop.call_exception_handler(
                {"message": "a background task failed", "exception": error, "task": task}
            )
