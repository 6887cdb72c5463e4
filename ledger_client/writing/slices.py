"""Calls that concern many ledgers, made in slices, so that they do not hold up the event loop.

Leaves the calls to their owners. One event of a client can concern each of its ledgers: a bookie
that leaves, a lost connection with an add of every ledger, a bookie that joins.

Invariants: one slice per iteration of the event loop; no call starts once a slice has lasted
`slice_max_s`; single calls come before rounds, and rounds take turns; an error of one call is
reported to the loop, and the others are still made.

Source: protocol rules 5.6 and 11.3.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

Call = Callable[[], None]


class Slices:
    """Queue of calls of one client's writers."""

    def __init__(
        self,
        slice_max_s: float,
        clock: Callable[[], float],
        call_soon: Callable[[Call], object],
    ) -> None:
        """`call_soon` makes a call in the next iteration of the loop, `clock` is the loop's."""
        self._slice_max_s = slice_max_s
        self._clock = clock
        self._call_soon = call_soon
        self._calls: deque[Call] = deque()
        self._rounds: deque[Iterator[Call]] = deque()
        self._is_scheduled = False
        self._is_closed = False

    def soon(self, call: Call) -> None:
        """Make one call."""
        if not self._is_closed:
            self._calls.append(call)
            self._schedule()

    def each(self, calls: Iterable[Call]) -> None:
        """Make a round of calls. The iterable yields each one right before it is made."""
        if not self._is_closed:
            self._rounds.append(iter(calls))
            self._schedule()

    def close(self) -> None:
        """Drop all calls, also later ones."""
        self._is_closed = True
        self._calls.clear()
        self._rounds.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        end_s = self._clock() + self._slice_max_s
        try:
            while (call := self._next()) is not None:
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - it is reported, and the others are made
                    what = {"message": "a call for one ledger failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(what)
                if self._clock() >= end_s:
                    break
        finally:
            self._is_scheduled = False
            if self._calls or self._rounds:
                self._schedule()

    def _next(self) -> Call | None:
        if self._calls:
            return self._calls.popleft()
        while self._rounds:
            call = next(self._rounds[0], None)
            if call is not None:
                self._rounds.rotate(-1)
                return call
            self._rounds.popleft()
        return None
