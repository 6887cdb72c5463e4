"""Turns of the threads that append to one blocking writer.

Leaves the appends to `sync_handles`.

Invariant: no call waits for a turn that never ends: in a forked child, where the thread that holds
the turn does not exist, and in the thread that holds it, a call is refused.
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
        self._lock = threading.Lock()
        self._holder: int | None = None

    @contextmanager
    def turn(self, timeout: float | None = None) -> Iterator[None]:
        """Context of one call; others wait, at most for `timeout` seconds.

        Raises ClientClosedError in a forked child, LedgerError in the thread that has the turn, and
        QuorumTimeoutError when the time is up; nothing was sent then.
        """
        self._background.require_process()
        caller = threading.get_ident()
        if self._holder == caller:
            raise LedgerError(
                "this call comes from inside another append to the same writer, from its iterable "
                "or a signal handler, and would wait for itself: append after that call",
                ledger_id=self._ledger_id,
            )
        limit = -1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))
        if not self._lock.acquire(timeout=limit):
            raise append_timed_out(self._ledger_id, None, timeout)
        self._holder = caller
        try:
            yield
        finally:
            self._holder = None
            self._lock.release()
