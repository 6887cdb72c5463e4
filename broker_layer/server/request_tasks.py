"""Tasks that answer requests, and the handling of their failures.

Leaves their work to the services, and the turns of large ones to `quire.server.step_turns`.

Invariant: the failure of a task affects only the connection of its request.
"""

import asyncio
from collections.abc import Coroutine

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.exchange import Exchange
from broker_layer.server.quotas.work_time import TimedWork
from metadata.cancelling import cancel_and_wait
from quire.identity.fair_queue import QueueFullError
from quire.server.server_log import ServerLog
from quire.server.step_turns import StepTurns


class RequestTasks:
    """The running tasks of requests; belongs to one event loop."""

    def __init__(self, counters: BrokerCounters, log: ServerLog) -> None:
        self._counters = counters
        self._log = log
        self._turns = StepTurns()
        self._tasks: dict[asyncio.Task[None], None] = {}

    def run(self, exchange: Exchange, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine that answers a request; if it fails, the connection is closed."""
        if exchange.work is not None:
            work = TimedWork(work, exchange.work)
        work = self._turns.run(exchange.requester.holder, work, exchange.size)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._note_end(done, exchange))

    async def close(self) -> None:
        """Cancel all running tasks."""
        await cancel_and_wait(*self._tasks)

    def _note_end(self, task: asyncio.Task[None], exchange: Exchange) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            exchange.requester.drop("request cancelled", "the broker is closing")
            return
        error = task.exception()
        if error is not None:
            self.note_failure(exchange, error)

    def note_unexpected(self, exchange: Exchange, error: BaseException) -> None:
        """Count and log an unexpected failure that the answer reports to the client."""
        self._counters.requests_failed += 1
        self._log.failure("request failed", error, api_key=int(exchange.api_key))

    def note_failure(self, exchange: Exchange, error: BaseException) -> None:
        """Close the connection of a request that cannot be answered, and log why."""
        if isinstance(error, KafkaFrameError):
            self._counters.bad_frames += 1
            exchange.requester.drop("bad frame", str(error))
            return
        if isinstance(error, QueueFullError):
            exchange.requester.drop("too many large requests", str(error))
            return
        self._counters.requests_failed += 1
        self._log.failure(
            "request failed", error, api_key=exchange.api_key, version=exchange.api_version
        )
        exchange.requester.drop("request failed", f"API {int(exchange.api_key)} failed")
