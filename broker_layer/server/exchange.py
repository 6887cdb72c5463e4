"""One request between its arrival and its answer: who sent it, its task, its time and its waits.

Leaves the order of answers to `connections`, their content to the handlers, the turns of large
requests to `quire.server.connection_context`, and what the time costs the client to `quotas`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Final, Protocol

from broker_layer.errors import LeftConnectionError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.frames import Buffer, RequestHeader, response_frame
from broker_layer.server.server_limits import BrokerCounters
from metadata.cancelling import cancel_and_wait
from quire.identity.principal import Principal
from quire.identity.shares import QueueFullError
from quire.server.connection_context import StepTurns
from quire.server.overriding import override
from quire.server.server_log import ServerLog

GRAIN_S: Final = 0.01
NO_TIMEOUT_S: Final = 30.0
"""Timeout of a request whose client gives none (0 or less), in seconds. Such a client wants the
result of the change, and Kafka's leader alone has it at once; here it takes a write to others."""


class Requester(Protocol):
    """The connection of a request, as handlers use it."""

    connection_id: int
    client_host: str
    listener: str
    principal: Principal
    is_private: bool

    @property
    def holder(self) -> str:
        """Return who holds what the client uses: its principal, or the network of one without."""

    def answered(self, exchange: "Exchange") -> None:
        """Send the answers that are next in order."""

    @property
    def unanswered_count(self) -> int:
        """Number of requests whose answers were not sent."""

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log."""

    def close(self) -> None:
        """Disconnect after everything written was sent."""

    def logged_in(self) -> None:
        """Take frames of the full size from now on."""

    def hold_reading(self, *, held: bool) -> None:
        """Stop or resume reading, because a handler has no room; holds are counted."""

    def reserve_now(self, exchange: "Exchange", count: int) -> bool:
        """Have `count` bytes reserved for an answer; return False if there is no room for more."""

    async def reserve(self, exchange: "Exchange", count: int) -> None:
        """Have `count` bytes reserved for an answer, when it is the client's turn."""

    def throttle(self, delay_s: float) -> None:
        """Stop reading for `delay_s`, because of a quota."""

    def when_first(self, exchange: "Exchange", start: Callable[[], None]) -> None:
        """Call `start` when every earlier request was answered and the peer reads its answers."""


class Exchange:
    """One request, and the sending of its answer.

    Invariant: a request is answered once; later answers, and answers after its connection is
    closed, are ignored.
    """

    __slots__ = (
        "answer_buffers",
        "api_key",
        "api_version",
        "arrived_s",
        "body",
        "client_id",
        "correlation_id",
        "deferred",
        "is_gone",
        "on_gone",
        "requester",
        "reserved",
        "size",
        "work",
    )

    def __init__(
        self,
        requester: Requester,
        header: RequestHeader,
        body: memoryview,
        size: int,
        arrived_s: float,
    ) -> None:
        """Create the exchange of a request that came at `arrived_s`, in a frame of `size` bytes."""
        self.requester = requester
        self.api_key, self.api_version, self.correlation_id, client_id, _ = header
        self.client_id = client_id or ""
        self.body = body
        self.size = size
        self.arrived_s = arrived_s
        self.answer_buffers: list[Buffer] | None = None
        self.deferred: Callable[[], None] | None = None
        """See `Requester.when_first`."""
        self.reserved = 0
        """Bytes that are reserved for its answer."""
        self.is_gone = False
        """Whether the connection is closed."""
        self.on_gone: Callable[[], None] | None = None
        """Called when the connection closes before the answer."""
        self.work: WorkTime | None = None
        """Time spent on it; None if it is not measured."""

    @property
    def context(self) -> RequestContext:
        """The origin of the request."""
        requester = self.requester
        return RequestContext(
            self.api_version,
            self.client_id,
            requester.client_host,
            requester.listener,
            requester.connection_id,
            requester.principal,
            requester.is_private,
        )

    def answer(self, body: Sequence[Buffer]) -> None:
        """Answer with a body in the request's version."""
        self.finish(response_frame(self.api_key, self.api_version, self.correlation_id, body))

    def finish(self, buffers: list[Buffer]) -> None:
        """Answer with a complete frame, or an empty list if the client expects no answer."""
        if self.answer_buffers is None and not self.is_gone:
            self.answer_buffers = buffers
            self.body = memoryview(b"")  # a large frame's buffer goes back to its pool
            self.on_gone = None
            self.requester.answered(self)

    def lose(self) -> None:
        """Note that the connection is closed."""
        self.is_gone = True
        self.deferred = None
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None and self.answer_buffers is None:
            on_gone()


RawHandler = Callable[[Exchange], None]
"""Handles a request as bytes without waiting, and answers it later. For APIs of the hot path."""


class WorkTime:
    """Time that the event loop works on one request: it is counted between `begin` and `end`, and
    not while the request waits for others, or for storage. Requests are measured only while some
    client has a quota of it.
    """

    __slots__ = ("_now", "_since_s", "_spent_s")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._spent_s = 0.0
        self._since_s: float | None = None

    def begin(self) -> None:
        """Begin to count; a call while it is counted is ignored."""
        if self._since_s is None:
            self._since_s = self._now()

    def end(self) -> None:
        """Stop counting."""
        self._spent_s = self.spent_s
        self._since_s = None

    @property
    def spent_s(self) -> float:
        """Seconds that were counted until now."""
        running_s = 0.0 if self._since_s is None else self._now() - self._since_s
        return self._spent_s + running_s


class TimedWork(Coroutine[None, None, None]):
    """Coroutine that counts the time of another one's steps."""

    __slots__ = ("_time", "_work")

    def __init__(self, work: Coroutine[None, None, None], time: WorkTime) -> None:
        self._work = work
        self._time = time

    @override
    def send(self, value: None) -> None:
        """See `Coroutine`."""
        self._time.begin()
        try:
            return self._work.send(value)
        finally:
            self._time.end()

    @override
    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> None:
        """See `Coroutine`."""
        self._time.begin()
        try:
            return self._work.throw(val if isinstance(val, BaseException) else _raised(typ))
        finally:
            self._time.end()

    @override
    def close(self) -> None:
        """See `Coroutine`."""
        self._work.close()

    @override
    def __await__(self) -> Generator[None, None, None]:
        """See `Coroutine`."""
        return self._work.__await__()


def _raised(what: type[BaseException] | BaseException) -> BaseException:
    return what if isinstance(what, BaseException) else what()


class RequestTasks:
    """The running tasks of requests; belongs to one event loop. The failure of one affects only the
    connection of its request.
    """

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
        if isinstance(error, LeftConnectionError):
            exchange.requester.drop("late request", str(error))
            return
        if isinstance(error, QueueFullError):
            exchange.requester.drop("too many large requests", str(error))
            return
        self._counters.requests_failed += 1
        self._log.failure(
            "request failed", error, api_key=exchange.api_key, version=exchange.api_version
        )
        exchange.requester.drop("request failed", f"API {int(exchange.api_key)} failed")


def timeout_of(timeout_ms: int, max_s: float) -> float:
    """Return the timeout of a request in seconds."""
    return min(timeout_ms / 1000 if timeout_ms > 0 else NO_TIMEOUT_S, max_s)


class Deadlines:
    """The waits of one event loop, with one timer for many of them: tens of thousands of Fetches
    and Produces can wait, and one timer for each would cost more than the rest of a small request.

    Invariant: the callback of a wait runs at most once, between its deadline and GRAIN_S later;
    after `remove` it does not run.
    """

    __slots__ = ("_by_tick", "_loop", "_timers")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_tick: dict[int, dict[int, Callable[[], None]]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, wait_id: int, delay_s: float, late: Callable[[], None]) -> int:
        """Call `late` after `delay_s`; return the tick, which `remove` needs."""
        tick = int((self._loop.time() + delay_s) / GRAIN_S) + 1
        waits = self._by_tick.get(tick)
        if waits is None:
            waits = self._by_tick[tick] = {}
            self._timers[tick] = self._loop.call_at(tick * GRAIN_S, self._expire, tick)
        waits[wait_id] = late
        return tick

    def remove(self, wait_id: int, tick: int) -> None:
        """Remove a wait; do nothing if it has ended."""
        waits = self._by_tick.get(tick)
        if waits is not None:  # the timer of an empty tick stays: there is at most one per tick
            waits.pop(wait_id, None)

    def close(self) -> None:
        """Remove every wait."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._by_tick.clear()

    def _expire(self, tick: int) -> None:
        waits = self._by_tick.pop(tick, {})
        self._timers.pop(tick, None)
        for late in waits.values():
            late()
