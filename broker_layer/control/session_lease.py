"""Lease of a broker: whether it may still answer for its partitions, by its local clock.

Leaves the session itself to the metadata store, and re-reading changes to `cluster_view.py`.

Invariant: once the session may have ended, other brokers may lead this broker's partitions. The
lease has then lapsed until all topics have been read again.

Source: topics design, "What a takeover does"; protocol rule 1.3.
"""

import asyncio
from collections.abc import Callable

from metadata.callbacks import Callbacks
from metadata.store.interface import Cancel, MetadataStore, SessionState


class SessionLease:
    """Follows one store's session until `close`."""

    def __init__(self, store: MetadataStore, session_timeout_s: float) -> None:
        self._store = store
        self._timeout_s = session_timeout_s
        self._suspended_s: float | None = None
        self._must_reread = False
        self._timer: asyncio.TimerHandle | None = None
        self._callbacks = Callbacks[()]()
        self._note(store.session_state)
        self._cancel = store.on_session(self._note)

    @property
    def has_lapsed(self) -> bool:
        """Whether other brokers may now lead what this broker led."""
        # Timers may be late: after a delay of the loop or of the process, the broker must not
        # answer before they have run.
        if self._must_reread or self._store.session_state is SessionState.EXPIRED:
            return True
        if self._suspended_s is None:
            return False
        return asyncio.get_running_loop().time() - self._suspended_s >= self._timeout_s

    @property
    def must_reread(self) -> bool:
        """Whether the broker must read all topics again before it may answer."""
        return self._must_reread

    def reread(self) -> None:
        """Record that all topics were read again since the session was last known to be good."""
        if self._suspended_s is None:
            self._must_reread = False

    def on_lapse(self, callback: Callable[[], None]) -> Cancel:
        """Register a callback that is called at each lapse."""
        return self._callbacks.add(callback)

    def close(self) -> None:
        """Stop following the session."""
        self._cancel()
        self._stop_timer()

    def _note(self, state: SessionState) -> None:
        loop = asyncio.get_running_loop()
        match state:
            case SessionState.CONNECTED:
                if self.has_lapsed:
                    self._lapse()
                self._suspended_s = None
                self._stop_timer()
            case SessionState.SUSPENDED:
                if self._suspended_s is None:
                    self._suspended_s = loop.time()
                    self._timer = loop.call_later(self._timeout_s, self._lapse)
            case SessionState.EXPIRED | SessionState.CLOSED:
                if self._suspended_s is None:
                    self._suspended_s = loop.time()
                self._lapse()

    def _lapse(self) -> None:
        if self._must_reread:
            return
        self._must_reread = True
        self._stop_timer()
        self._callbacks.notify()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
