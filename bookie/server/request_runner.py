"""Execution of one connection's requests that must wait, with a limit on their number and size; and
the frames of answers.

Leaves the requests and the connection to the callers.

Invariants: requests start in the order of their arrival. Metered ones cost their client a part of
its quota: they start one at a time, after the others, and never while the client is over its quota.
A request with an answer of some size starts once its bytes are reserved among all connections.
A failed request is answered UNKNOWN and affects no other; after `cancel` no request runs and no
answer is sent. An answer never exceeds the largest frame; a longer one ends early, before a batch,
and says where to continue.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.storage.answers import ReadResult
from bookie.wire.batch import Buffer, parse_header
from bookie.wire.codec import (
    ENTRIES_BATCHES_MAX,
    ENTRIES_HEADER_BYTES,
    TEXT_BYTES_MAX,
    encode_acks,
    encode_entries,
    encode_message,
)
from bookie.wire.frames import FRAME_BYTES_MAX, FrameKind, frame_header
from bookie.wire.messages import Refused, Reply, Status
from quire.server.connection_context import AnswerRoom
from quire.server.server_log import ServerLog

BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - ENTRIES_HEADER_BYTES
"""Maximum size of a batch: it must fit into an answer as well as into an add."""


def reply_frame(request_id: int, reply: Reply) -> bytes:
    """Return the frame with the answer to a control message."""
    body = encode_message(reply)
    return frame_header(FrameKind.REPLY, request_id, len(body)) + body


def refusal_frame(request_id: int, status: Status, reason: str) -> bytes:
    """Return the frame of a refusal: the request was not executed, and why."""
    return reply_frame(request_id, Refused(status, reason[:TEXT_BYTES_MAX]))


def acks_frame(acks: Sequence[tuple[int, Status]]) -> bytes:
    """Return one frame with the answers to many adds."""
    body = encode_acks(acks)
    return frame_header(FrameKind.ACKS, 0, len(body)) + body


def entries_frame(request_id: int, result: ReadResult) -> list[Buffer]:
    """Return the answer to a read as buffers to write one after another."""
    result = _cut_to_limits(result)
    body = encode_entries(result.status, result.lac, result.next_entry_id, result.batches)
    size = sum(map(len, body))
    return [frame_header(FrameKind.ENTRIES, request_id, size), *body]


def _cut_to_limits(result: ReadResult) -> ReadResult:
    size = 0
    for index, batch in enumerate(result.batches):
        size += len(batch)
        if size > BATCH_BYTES_MAX or index == ENTRIES_BATCHES_MAX:
            assert index, "one batch always fits: a larger one is refused when it is added"
            following = parse_header(batch).first_entry_id
            kept = result.batches[:index]
            return replace(result, status=Status.OK, next_entry_id=following, batches=kept)
    return result


Answering = Callable[[], Awaitable[list[Buffer]]]
"""Executes a request and returns the frame of its answer."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    request_id: int
    size: int
    answering: Answering
    is_metered: bool


@dataclass(eq=False, repr=False, slots=True)
class RequestRunner:
    """Runner that starts requests while there is room and the client reads its answers; others
    wait.
    """

    _limits: ServerLimits
    _log: ServerLog
    _counters: ServerCounters
    _send: Callable[[list[Buffer], int], None]
    """Sends an answer, for which so many bytes were reserved."""
    _room: AnswerRoom
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False)
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _bytes_running: int = field(default=0, init=False)
    _number: int = field(default=0, init=False)
    _is_held: bool = field(default=False, init=False)
    _metered: deque[_Waiting] = field(default_factory=deque, init=False)
    _is_metered_running: bool = field(default=False, init=False)
    _is_throttled: bool = field(default=False, init=False)
    _turn: asyncio.Task[None] | None = field(default=None, init=False)
    """Waits until bytes are reserved for the next request."""
    _reserved: int = field(default=0, init=False)
    """Bytes that were reserved for the next request."""

    @property
    def is_full(self) -> bool:
        """Whether no more requests should be read from the client, because too many wait."""
        return len(self._waiting) + len(self._metered) >= self._limits.requests_waiting_max

    @property
    def is_idle(self) -> bool:
        """Whether no request runs or waits."""
        return not self._tasks and not self._waiting and not self._metered

    def submit(
        self, request_id: int, size: int, answering: Answering, *, is_metered: bool = False
    ) -> None:
        """Run a request, now or after the waiting ones. Its answer takes about `size` bytes."""
        queue = self._metered if is_metered else self._waiting
        queue.append(_Waiting(request_id, size, answering, is_metered))
        self._start_what_fits()

    def hold(self, *, held: bool) -> None:
        """Start no requests while `held`, because the client does not read its answers."""
        self._is_held = held
        if held:
            self._end_turn()
        self._start_what_fits()

    def throttle(self, *, on: bool) -> None:
        """Start no metered requests while the client is over its quota."""
        self._is_throttled = on
        if not on:
            self._start_what_fits()

    def cancel(self) -> None:
        """Drop waiting requests and cancel running ones."""
        self._waiting.clear()
        self._metered.clear()
        self._end_turn()
        for task in list(self._tasks.values()):
            task.cancel()

    def _start_what_fits(self) -> None:
        limits = self._limits
        while (
            (queue := self._startable())
            and not self._is_held
            and len(self._tasks) < limits.requests_running_max
        ):
            size = queue[0].size
            # A single request always runs, independent of its size.
            if self._tasks and self._bytes_running + size > limits.requests_running_bytes_max:
                return
            reserved = self._room.usable(size)
            if not self._reserve(reserved):
                return
            waiting = queue.popleft()
            self._is_metered_running |= waiting.is_metered
            self._number += 1
            self._bytes_running += size
            running = self._run(self._number, waiting, reserved)
            task = asyncio.get_running_loop().create_task(running)
            self._tasks[self._number] = task
            task.add_done_callback(partial(self._end, self._number, waiting))

    def _reserve(self, count: int) -> bool:
        """Return whether bytes are reserved now; if not, go on once they are."""
        if self._turn is not None:
            return not count
        ahead, self._reserved = self._reserved, 0
        if ahead >= count:
            self._room.release(ahead - count)
            return True
        self._room.release(ahead)
        if self._room.reserve_now(count):
            return True
        self._turn = asyncio.get_running_loop().create_task(self._await_turn(count))
        return False

    async def _await_turn(self, count: int) -> None:
        await self._room.reserve(count)
        self._turn, self._reserved = None, count
        self._start_what_fits()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        reserved, self._reserved = self._reserved, 0
        self._room.release(reserved)

    def _startable(self) -> deque[_Waiting]:
        """Return the requests of which the first may start, apart from the limits."""
        if self._waiting or self._is_throttled or self._is_metered_running:
            return self._waiting
        return self._metered

    def _end(self, number: int, ended: _Waiting, _: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._bytes_running -= ended.size
        if ended.is_metered:
            self._is_metered_running = False
        self._start_what_fits()

    async def _run(self, number: int, waiting: _Waiting, reserved: int) -> None:
        try:
            answer = await waiting.answering()
        except asyncio.CancelledError:
            self._room.release(reserved)
            raise
        except Exception as error:  # noqa: BLE001 - an error of one request affects no other
            self._counters.requests_failed += 1
            self._log.failure("request failed", error, request=number)
            reason = "the bookie failed to execute this request; its log has the error"
            answer = [refusal_frame(waiting.request_id, Status.UNKNOWN, reason)]
        self._send(answer, reserved)
