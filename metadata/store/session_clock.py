"""State of a ZooKeeper session, by this process's own clock.

Leaves the connection to `zookeeper/session.py`, and reading the clock to `zookeeper/store.py`.

Invariants: EXPIRED is reported no later than the server may end the session. The server counts from
the last request that it received, which is never before the sending of the last request that it
answered. A server that answers nothing counts as silent so early that the session can still move
to another server.

Source: metadata design; kazoo reports LOST only after it has reconnected.
"""

from typing import Final

from metadata.callbacks import Callbacks
from metadata.store.interface import Cancel, SessionCallback, SessionState
from metadata.store.zookeeper.session import LinkDown, LinkEvent, LinkUp, SessionLost

SILENT_AFTER: Final = 2 / 3
"""Part of a session without an answer after which its server is left: ZooKeeper's own client takes
the same."""


class SessionClock:
    """State of the current session; calls the `on_session` callbacks at each change."""

    def __init__(self, session_timeout_s: float, now: float) -> None:
        self.state = SessionState.SUSPENDED
        self.session_id = 0
        self.session_timeout_s = session_timeout_s
        self._is_up = False
        self._contacted_s = now
        self._heard_s = now
        self._callbacks = Callbacks[SessionState]()

    def state_at(self, now: float) -> SessionState:
        """Return the state. It is EXPIRED from `ends_s` on, also before `check` has reported it:
        a delay of the loop delays the report.
        """
        return SessionState.EXPIRED if self._is_over(now) else self.state

    @property
    def ends_s(self) -> float:
        """Loop time at which the session counts as expired unless the server answers before."""
        return self._contacted_s + self.session_timeout_s

    @property
    def silent_s(self) -> float:
        """Loop time from which the server counts as silent unless it answers before."""
        return self._heard_s + self.session_timeout_s * SILENT_AFTER

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call back at every change of the state."""
        return self._callbacks.add(callback)

    def note_link(self, event: LinkEvent) -> None:
        """Process a report from the connection; reports must come in order."""
        if self.state is SessionState.CLOSED:
            return
        self._is_up = isinstance(event, LinkUp)
        match event:
            case LinkUp(session_id, session_timeout_s, contacted_s):
                if self.session_id not in (0, session_id):
                    self._enter(SessionState.EXPIRED)
                self.session_id = session_id
                self.session_timeout_s = session_timeout_s
                self._contacted_s = self._heard_s = contacted_s
                self._enter(SessionState.CONNECTED)
            case LinkDown():
                if self.state is SessionState.CONNECTED:
                    self._enter(SessionState.SUSPENDED)
            case SessionLost():
                if self.session_id:
                    self._enter(SessionState.EXPIRED)

    def contacted(self, sent_s: float, now: float) -> None:
        """Restart the count at a request that was sent at `sent_s` and answered; the server may
        have kept the session after all.
        """
        self._contacted_s = max(self._contacted_s, sent_s)
        self._heard_s = now
        if self.state is SessionState.EXPIRED and self._is_up and now < self.ends_s:
            self._enter(SessionState.CONNECTED)

    def check(self, now: float) -> None:
        """Expire the session if the last contact is too long ago."""
        if self._is_over(now):
            self._enter(SessionState.EXPIRED)

    def _is_over(self, now: float) -> bool:
        is_alive = self.state in (SessionState.CONNECTED, SessionState.SUSPENDED)
        return is_alive and self.session_id != 0 and now >= self.ends_s

    def close(self) -> None:
        """Close permanently."""
        self._enter(SessionState.CLOSED)

    def _enter(self, state: SessionState) -> None:
        if state is self.state:
            return
        self.state = state
        self._callbacks.notify(state)
