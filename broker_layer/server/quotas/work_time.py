"""Time that the event loop works on one request.

Leaves what it costs the client to `client_quotas`. Requests are measured only while some client has
a quota of it.

Invariant: time in which a request waits for others, or for storage, is not counted.
"""

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType

from quire.server.overriding import override


class WorkTime:
    """Time of one request: it is counted between `begin` and `end`."""

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
