"""Turns of the threads that append to one blocking writer.

Leaves the appends to `sync_handles`.

Invariants: no call waits for a turn that never ends: in a forked child, where the thread that holds
the turn does not exist, and in the thread that holds it, a call is refused. An interrupt
(KeyboardInterrupt) ends the turn of its call at whatever step it comes: the lock itself knows who
has it, so that a turn is ended by one step, whether the call learned that it has it or not.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ledger_client.blocking.sync_loop import BackgroundLoop
from ledger_client.errors import LedgerError, append_timed_out
from metadata.ids import LedgerId


class CallOrder:
    """Order of the calls of one writer, from any threads."""

    def __init__(self, background: BackgroundLoop, ledger_id: LedgerId) -> None:
        self._background = background
        self._ledger_id = ledger_id
        self._lock = threading.RLock()

    @contextmanager
    def turn(self, timeout: float | None = None) -> Iterator[None]:
        """Context of one call; others wait, at most for `timeout` seconds.

        Raises ClientClosedError in a forked child, LedgerError in the thread that has the turn, and
        QuorumTimeoutError when the time is up; nothing was sent then.
        """
        self._background.require_process()
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as Condition does
            raise LedgerError(
                "this call comes from inside another append to the same writer, from its iterable "
                "or a signal handler, and would wait for itself: append after that call",
                ledger_id=self._ledger_id,
            )
        limit = -1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))
        try:
            if not self._lock.acquire(timeout=limit):
                raise append_timed_out(self._ledger_id, None, timeout)
            yield
        finally:
            try:  # noqa: SIM105 - `suppress` would be more steps
                self._lock.release()
            except RuntimeError:  # the time was up: this call has no turn
                pass
