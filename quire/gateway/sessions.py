"""Sessions of a gateway's clients, and the end of their ephemeral nodes.

Leaves requests to `requests.py`, and connections to `connection.py`.

A session lives while its client is heard: from one connection to the next. All of them are nodes of
one session with ZooKeeper, which ends them if this process does.

Invariants: a session goes on only for the client with its token and its principal; a session that
has ended never comes back. Its nodes are removed after its last request has ended, each only while
it has a value that this session wrote. When the session with ZooKeeper ends, all sessions end.

Source: docs/formats.md, "Connections to a gateway".
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, NodeNotFoundError, VersionConflictError
from metadata.gateway.messages import TOKEN_BYTES, Hello
from metadata.store.interface import MetadataStore, SessionState, find
from quire.gateway.id_blocks import IdBlocks
from quire.gateway.limits import GatewayCounters, GatewayLimits
from quire.gateway.own_nodes import OwnNodes

if TYPE_CHECKING:
    from quire.gateway.connection import ClientConnection

SESSION_ID_BITS: Final = 63


@dataclass(eq=False, slots=True)
class ClientSession:
    """One session."""

    session_id: int
    token: bytes
    principal: str
    timeout_s: float
    heard_s: float
    """When the last bytes of the client arrived."""
    connection: "ClientConnection | None" = None
    ephemerals: OwnNodes = field(default_factory=OwnNodes)
    ids: IdBlocks = field(default_factory=IdBlocks)
    running: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """Requests under way, also those of lost connections."""
    is_over: bool = False


class Sessions:
    """Sessions of one gateway, until `aclose`."""

    def __init__(
        self,
        store: MetadataStore,
        rng: Random,
        limits: GatewayLimits,
        counters: GatewayCounters,
        session_timeout_s: Callable[[], float],
    ) -> None:
        """`rng` draws secrets. `session_timeout_s` returns the time of the store's session."""
        self._store = store
        self._rng = rng
        self._limits = limits
        self._counters = counters
        self._session_timeout_s = session_timeout_s
        self._sessions: dict[int, ClientSession] = {}
        self._of_principal = Counter[str]()
        self._ends: dict[asyncio.Task[None], None] = {}
        self._store_session = store.session_id
        self._cancel = store.on_session(self._note_state)

    def begin(self, hello: Hello, principal: str, now_s: float) -> ClientSession | None:
        """Return the session of a hello, or a new one; None if there are too many, of this
        principal or of all.
        """
        known = self._sessions.get(hello.session_id)
        if (
            known is not None
            and hmac.compare_digest(known.token, hello.token)
            and known.principal == principal
        ):
            if known.connection is not None:
                known.connection.abort()
            known.heard_s = now_s
            return known
        own_max = self._limits.sessions_per_principal_max
        if own_max and principal and self._of_principal[principal] >= own_max:
            return None
        if len(self._sessions) + len(self._ends) >= self._limits.sessions_max:
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.getrandbits(SESSION_ID_BITS)
        wanted_s = max(self._limits.session_s_min, hello.session_timeout_ms / 1000)
        timeout_s = min(wanted_s, self._session_timeout_s())
        token = self._rng.randbytes(TOKEN_BYTES)
        session = ClientSession(session_id, token, principal, timeout_s, now_s)
        self._sessions[session_id] = session
        self._of_principal[principal] += 1
        self._counters.sessions_now = len(self._sessions)
        return session

    def sweep(self, now_s: float) -> None:
        """End the sessions whose clients were not heard for their time."""
        for session in list(self._sessions.values()):
            if now_s - session.heard_s > session.timeout_s:
                self._expire(session)

    def end(self, session: ClientSession) -> "asyncio.Task[None] | None":
        """End a session; return the removal of its nodes, None if it has ended before."""
        if session.is_over:
            return None
        session.is_over = True
        self._sessions.pop(session.session_id, None)
        self._of_principal[session.principal] -= 1
        if not self._of_principal[session.principal]:
            del self._of_principal[session.principal]
        self._counters.sessions_now = len(self._sessions)
        if session.connection is not None:
            session.connection.end_soon()
        task = asyncio.get_running_loop().create_task(self._remove_nodes(session))
        self._ends[task] = None
        task.add_done_callback(lambda done: self._ends.pop(done, None))
        return task

    async def aclose(self) -> None:
        """Stop; the end of the store's session removes the nodes of all sessions."""
        self._cancel()
        await cancel_and_wait(*self._ends)

    def _expire(self, session: ClientSession) -> None:
        """End a session without an answer to its client, which notices at once."""
        self._counters.sessions_expired += 1
        connection = session.connection
        self.end(session)
        if connection is not None:
            connection.abort()

    async def _remove_nodes(self, session: ClientSession) -> None:
        """Remove what the session created, until it is certain."""
        await asyncio.gather(*session.running, return_exceptions=True)
        backoff = Backoff(self._rng)
        nodes = session.ephemerals
        for path in nodes:
            while True:
                try:
                    stored = await find(self._store, path)
                    if stored is None or not nodes.wrote(path, stored, session.session_id):
                        break
                    await self._store.delete(path, stored.version)
                except (NodeNotFoundError, VersionConflictError):
                    continue  # the stored state decides
                except MetadataError:
                    if self._store.session_state is SessionState.CLOSED:
                        return
                    await asyncio.sleep(backoff.next_s())

    def _note_state(self, state: SessionState) -> None:
        """End all sessions when the store's session has ended: their nodes are gone."""
        is_new = state is SessionState.CONNECTED and self._store.session_id != self._store_session
        if state is SessionState.CONNECTED:
            self._store_session = self._store.session_id
        if is_new or state is SessionState.EXPIRED:
            for session in list(self._sessions.values()):
                self._expire(session)
