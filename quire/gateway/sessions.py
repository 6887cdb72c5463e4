"""Sessions of a gateway's clients, their ephemeral nodes, and ids of ledgers that they allocated.

Source: docs/formats.md, "Connections to a gateway"; docs/security.md, "A gateway for clients".
"""

import asyncio
import hmac
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.gateway.messages import TOKEN_BYTES, Hello
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import (
    Check,
    CompareAndSet,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionState,
    Stored,
    find,
)
from quire.gateway.limits import GatewayCounters, GatewayLimits

if TYPE_CHECKING:
    from quire.gateway.connection import ClientConnection

SESSION_ID_BITS: Final = 63
Sent = Sequence[tuple[int, Create | CompareAndSet | Delete]]
"""Writes of one request to nodes of the session, with their numbers."""
BLOCKS_MAX: Final = 64


@dataclass(slots=True)
class _Node:
    values: dict[int, bytes] = field(default_factory=dict)
    """Values that the node may have, by the numbers of their writes."""
    created: int | None = None
    """Number of the creation that was answered OK; None without one."""
    deletes: dict[int, None] = field(default_factory=dict)
    """Numbers of deletions that may have taken effect."""

    @property
    def is_own(self) -> bool:
        return self.created is not None and not self.deletes


class OwnNodes:
    """Nodes of one session.

    Only a creation that was answered OK gives rights on a node, and only until a deletion is sent
    behind it. Writes have numbers in the order in which they are sent, which is that of the store;
    an answer says nothing about writes behind its own.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._last = 0

    def __len__(self) -> int:
        """Return the number of nodes that may be the session's."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        """Return the paths of all nodes that may be the session's."""
        return iter(self._nodes)

    def has(self, path: str) -> bool:
        """Return whether a node certainly is the session's."""
        node = self._nodes.get(path)
        return node is not None and node.is_own

    def values_of(self, path: str) -> list[bytes]:
        """Return the values that a node of the session may have."""
        node = self._nodes.get(path)
        return [] if node is None else list(node.values.values())

    def uncertain(self, path: str) -> int:
        """Return how many writes decide what a node is."""
        node = self._nodes.get(path)
        return 0 if node is None else len(node.values) + len(node.deletes)

    def wrote(self, path: str, stored: Stored, session_id: int) -> bool:
        """Return whether this session wrote what is stored. A creation without an answer proves it
        only with a value that names the session: another client may have chosen the same value.
        """
        if not stored.ephemeral or stored.value not in self.values_of(path):
            return False
        try:
            return self.has(path) or unpack_held(path, stored.value).session_id == session_id
        except MetadataFormatError:
            return False

    def begin(self, operations: Sequence[Operation]) -> Sent:
        """Note writes that are sent now; return what their outcome is noted with."""
        sent: list[tuple[int, Create | CompareAndSet | Delete]] = []
        for operation in operations:
            is_new = isinstance(operation, Create) and operation.ephemeral
            if isinstance(operation, Check) or not (is_new or operation.path in self._nodes):
                continue
            self._last += 1
            sent.append((self._last, operation))
            node = self._nodes.setdefault(operation.path, _Node())
            if isinstance(operation, Delete):
                node.deletes[self._last] = None
            else:
                node.values[self._last] = operation.value
        return sent

    def note_failed(self, sent: Sent) -> None:
        """Note that writes certainly had no effect."""
        for number, operation in sent:
            node = self._nodes.get(operation.path)
            if node is not None:
                node.values.pop(number, None)
                node.deletes.pop(number, None)
                self._drop_empty(operation.path, node)

    def note_done(self, sent: Sent) -> None:
        """Note that writes took effect: those before them at the same nodes are gone."""
        for number, operation in sent:
            node = self._nodes.get(operation.path)
            if node is None:
                continue
            node.values = {at: value for at, value in node.values.items() if at >= number}
            match operation:
                case Create():
                    node.created = number
                case Delete():
                    is_older = node.created is not None and node.created < number
                    node.created = None if is_older else node.created
                case CompareAndSet():
                    continue
            node.deletes = dict.fromkeys(at for at in node.deletes if at > number)
            self._drop_empty(operation.path, node)

    def _drop_empty(self, path: str, node: _Node) -> None:
        if not node.values and node.created is None:
            del self._nodes[path]


class IdBlocks:
    """Blocks of ids, each from its first to below its end.

    At most BLOCKS_MAX blocks are kept; the oldest is dropped, and its ids are unused.
    """

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque(maxlen=BLOCKS_MAX)

    def add(self, block: tuple[int, int]) -> None:
        """Add a block."""
        self._blocks.append(block)

    def has(self, number: int) -> bool:
        """Return whether a number is in a block."""
        return any(first <= number < end for first, end in self._blocks)


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
    """Sessions of one gateway, until `aclose`.

    A session lives while its client is heard: from one connection to the next. All of them are
    nodes of one session with ZooKeeper, which ends them if this process does.

    A session goes on only for the client with its token and its principal; a session that has ended
    never comes back. Its nodes are removed after its last request has ended, each only while it has
    a value that this session wrote. When the session with ZooKeeper ends, all sessions end.
    """

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
