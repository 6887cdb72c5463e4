"""Runs the coroutines that answer requests, and sees how each ends.

Leaves what they do to the services.

Invariant: whatever a coroutine meets stays with the connection that its request came by.
"""

import asyncio
from collections.abc import Coroutine

from broker_layer.kafka.errors import FrameError
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.exchange import Exchange
from serving.server_log import ServerLog


class RequestTasks:
    """The requests that are waiting for something; belongs to one event loop."""

    def __init__(self, counters: BrokerCounters, log: ServerLog) -> None:
        self._counters = counters
        self._log = log
        self._tasks: dict[asyncio.Task[None], None] = {}

    def run(self, exchange: Exchange, work: Coroutine[None, None, None]) -> None:
        """Have a coroutine answer a request; when it fails, the connection goes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._note_end(done, exchange))

    async def close(self) -> None:
        """Give up what is still being served."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note_end(self, task: asyncio.Task[None], exchange: Exchange) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            exchange.requester.drop("request given up", "the broker is closing")
            return
        error = task.exception()
        if error is not None:
            self.note_failure(exchange, error)

    def note_unexpected(self, exchange: Exchange, error: BaseException) -> None:
        """Note a failure of ours that the request's answer tells of."""
        self._counters.requests_failed += 1
        self._log.failure("request failed", error, api_key=int(exchange.api_key))

    def note_failure(self, exchange: Exchange, error: BaseException) -> None:
        """Close the connection of a request that cannot be answered; say why."""
        if isinstance(error, FrameError):
            self._counters.bad_frames += 1
            exchange.requester.drop("bad frame", str(error))
            return
        self._counters.requests_failed += 1
        self._log.failure(
            "request failed", error, api_key=exchange.api_key, version=exchange.api_version
        )
        exchange.requester.drop("request failed", f"API {int(exchange.api_key)}")
