"""Work of one object in the background: tasks that it cancels together, and calls for the next loop
iteration.

Leaves the errors of tasks to the loop's exception handler: a task that fails is a bug, not a
condition.
"""

import asyncio
from collections.abc import Callable, Coroutine

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


class NextTick:
    """Calls that a client's writers want to make in the next loop iteration.

    A handle per ledger would, for a thousand ledgers, cost the loop as much as sending their
    batches. Each requested call is made once, in the order of the requests; an error of one call is
    reported to the loop, and the others are still made.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next loop iteration."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._run)
        self._calls.append(call)

    def _run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - it is reported, and the others are called
                what = {"message": "a call for this loop iteration failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(what)
