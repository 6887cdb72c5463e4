"""Event loop in virtual time: it runs coroutines in an order drawn from a seed.

Leaves networks, disks and stores to the other modules of `tests.simulation`. The loop does not
wait, read a clock, or do input or output.

Invariants: time moves only when no callback is ready. `time()` and timers follow the clock of the
callback's machine; `now_s` is true time. The seed shuffles ready callbacks. Tasks hash
by creation number, so that sets of them iterate alike in every process. Tasks of a killed node
never run again, not even their `finally`. Tasks of a paused node wait, in order, until it resumes.
One seed gives one history on one release of Python: `asyncio.gather` of 3.14.8 has a callback more
than that of 3.13, and the order of all later ones is another.
Source: assurance design, "Deterministic simulation".
"""

import asyncio
import contextlib
import heapq
import itertools
import random
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar, cast

from typing_extensions import override  # `typing` has it from 3.12 on

from tests.simulation.clocks import CLOCK, TRUE_CLOCK, HostClock

Result = TypeVar("Result")

NODE: Final = ContextVar("NODE", default=0)
"""Node (simulated process) that a callback belongs to; 0 is the test itself."""

CALLBACKS_MAX: Final = 50_000_000
"""A run with more loop steps than this counts as a livelock."""

RESOLUTION_S: Final = 1e-6
"""Shortest delay, in seconds: a task that sleeps until a true time, by a clock that is fast, gets
there in few steps.
"""

TASKS_KEPT: Final = 1_000
"""Number of tasks at which finished ones are dropped."""


class LivelockError(Exception):
    """The run does not end, or no event is left that could wake it."""


class SimulationTask(asyncio.Task[Any]):
    """A task whose hash is its creation number, not its address."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class SimulationLoop(base_events.BaseEventLoop):
    """Event loop without access to the real world; see `run_simulation`."""

    _ready: deque[asyncio.Handle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(f"loop {seed}")
        self.failures: list[BaseException] = []
        self._now = 0.0
        self._steps = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._task_numbers = itertools.count(1)
        self._node_numbers = itertools.count(1)
        self._dead: dict[int, None] = {}
        self._paused: dict[int, list[asyncio.Handle]] = {}
        self._counted: dict[int, tuple[int, Callable[[], None]]] = {}
        self._contexts: dict[int, Context] = {}
        self._tasks: list[SimulationTask] = []
        self._tasks_max = TASKS_KEPT
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_failure)

    @override
    def time(self) -> float:
        """Return the monotonic time of the running callback's machine."""
        clock = CLOCK.get()
        return self._now if clock is TRUE_CLOCK else clock.monotonic_s(self._now)

    @property
    def now_s(self) -> float:
        """Return the true time, which only the simulation itself knows."""
        return self._now

    @property
    def step_count(self) -> int:
        """Number of callbacks that have run."""
        return self._steps

    def spawn(
        self, coroutine: Coroutine[Any, Any, Result], clock: HostClock = TRUE_CLOCK
    ) -> tuple[int, asyncio.Task[Result]]:
        """Start a coroutine as a new node that `kill` can end; return the node and the task."""
        node = next(self._node_numbers)
        context = copy_context()
        context.run(NODE.set, node)
        context.run(CLOCK.set, clock)
        self._contexts[node] = context
        return node, self.create_task(coroutine, context=context)

    def run_in(self, node: int, call: Callable[[], Result]) -> Result:
        """Call a function as part of a node, so that tasks that it starts belong to the node."""
        return self._contexts[node].copy().run(call)

    def pause(self, node: int) -> None:
        """Run no callback of a node until `resume`, like a stopped process."""
        self._paused.setdefault(node, [])

    def call_after_steps(self, node: int, steps: int, call: Callable[[], None]) -> None:
        """Call a function once, right after a node has run some more callbacks, from outside of it:
        between two awaits of one of its tasks, with its other callbacks ready.
        """
        self._counted[node] = steps, call

    def resume(self, node: int) -> None:
        """Let a paused node continue: callbacks that became due in the pause are ready at once."""
        self._counted.pop(node, None)
        self._ready.extend(self._paused.pop(node, []))

    def is_alive(self, node: int) -> bool:
        """Return whether a node has not been killed."""
        return node not in self._dead

    def kill(self, node: int) -> None:
        """Drop all callbacks and tasks of a node, like a power cut."""
        self._dead[node] = None
        self._paused.pop(node, None)
        self._counted.pop(node, None)
        for handle in itertools.chain(self._ready, [timer[2] for timer in self._timers]):
            if self._is_dead(handle):
                handle.cancel()

    @override
    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._dead and self._is_dead(handle):
            handle.cancel()
        else:
            self._ready.append(handle)
        return handle

    @override
    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        clock = _clock_of(handle)
        due_s = when if clock is TRUE_CLOCK else clock.true_s(when)
        if self._dead and self._is_dead(handle):
            handle.cancel()
        else:
            handle._scheduled = True  # type: ignore[attr-defined]
            self._timer_count += 1
            heapq.heappush(self._timers, (due_s, self._timer_count, handle))
        return handle

    @override
    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        clock = CLOCK.get() if context is None else context.get(CLOCK, TRUE_CLOCK)
        if delay > 0:
            delay = max(delay, RESOLUTION_S)
        when = clock.monotonic_s(self._now) + delay
        return self.call_at(when, callback, *args, context=context)

    @override
    def call_soon_threadsafe(self, *_: Any, **__: Any) -> asyncio.Handle:  # type: ignore[override]
        """Refuse: there are no threads in a simulation."""
        raise AssertionError("a thread reached into the simulation")

    @override
    def run_in_executor(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Refuse: there are no threads in a simulation."""
        raise AssertionError("code started a thread in the simulation")

    def close_tasks(self) -> None:
        """Close every coroutine that is left, without running any other."""
        for node in range(next(self._node_numbers)):
            self._dead[node] = None
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    cast("Coroutine[Any, Any, Any]", task.get_coro()).close()

    @override
    def close(self) -> None:
        self._timers.clear()
        super().close()

    def _is_dead(self, handle: asyncio.Handle) -> bool:
        context: Context = handle._context  # type: ignore[attr-defined]
        return context.get(NODE, 0) in self._dead

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Task[Any]:
        assert asyncio.iscoroutine(coroutine)
        task = SimulationTask(next(self._task_numbers), coroutine, loop=loop, **options)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [
                simulation_task for simulation_task in self._tasks if not simulation_task.done()
            ]
            self._tasks_max = 2 * len(self._tasks) + TASKS_KEPT
        return task

    def _note_failure(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        self.failures.append(exception or RuntimeError(str(context.get("message"))))

    def _asyncgen_finalizer_hook(self, generator: object) -> None:
        """Leave an abandoned generator unfinished: the time of its collection is not part of the
        history.
        """

    def _run_once(self) -> None:
        timers = self._timers
        if not self._ready or (timers and timers[0][0] <= self._now):
            self._take_due_timers()
        ready = list(self._ready)
        self._ready.clear()
        self._steps += len(ready)
        if self._steps > CALLBACKS_MAX:
            raise LivelockError(f"more than {CALLBACKS_MAX} callbacks at {self._now} s")
        if len(ready) > 1:
            self.rng.shuffle(ready)
        paused, counted = self._paused, self._counted
        for handle in ready:
            if not handle._cancelled and not (paused and self._is_parked(handle)):
                handle._run()
                if counted:
                    self._count(handle)

    def _take_due_timers(self) -> None:
        """If no callback is ready, move the clock to the next timer; make due timers ready."""
        timers, ready = self._timers, self._ready
        if self._timer_cancelled_count > max(100, len(timers) // 2):
            timers[:] = [timer for timer in timers if not timer[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise LivelockError("every task waits, and no event is left that could wake one")
            self._now = max(self._now, timers[0][0])
        now = self._now
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle._cancelled:
                ready.append(handle)

    def _is_parked(self, handle: asyncio.Handle) -> bool:
        context: Context = handle._context  # type: ignore[attr-defined]
        parked = self._paused.get(context.get(NODE, 0))
        if parked is None:
            return False
        parked.append(handle)
        return True

    def _count(self, handle: asyncio.Handle) -> None:
        context: Context = handle._context  # type: ignore[attr-defined]
        node = context.get(NODE, 0)
        if node not in self._counted:
            return
        steps, call = self._counted[node]
        if steps > 1:
            self._counted[node] = steps - 1, call
            return
        del self._counted[node]
        call()

    def _write_to_self(self) -> None:
        raise AssertionError("a thread reached into the simulation")


def _clock_of(handle: asyncio.Handle) -> HostClock:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(CLOCK, TRUE_CLOCK)


def simulation_loop() -> SimulationLoop:
    """Return the running loop, which must be a simulation's."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    return loop


def run_simulation(
    main: Callable[[], Coroutine[Any, Any, Result]], seed: int, *, until_s: float = 1e6
) -> Result:
    """Run `main()` to its end under `seed`; an unhandled failure in any task or callback fails the
    run.

    Raises LivelockError when no event is left, TimeoutError after `until_s` of virtual time.
    """
    loop = SimulationLoop(seed)
    try:
        with contextlib.suppress(RuntimeError):
            events.get_running_loop()
            raise AssertionError("a simulation cannot run inside another loop")
        result = loop.run_until_complete(asyncio.wait_for(main(), until_s))
        if loop.failures:
            raise loop.failures[0]
        return result
    finally:
        loop.close_tasks()
        loop.close()
