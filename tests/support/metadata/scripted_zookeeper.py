"""ZooKeeper servers of a test: each lags, is led by a replaced leader, is silent, loses answers or
refuses, on request.

Leaves bytes to `scripted_wire`, what the servers share to `scripted_service`, and the meaning of
operations to `metadata.store.memory_tree`. The service's tree is what a quorum has committed; the
state of a server may be older. There are no access rights, and sessions end on request only.

Source: ZooKeeper 3.9: a server refuses a client that has seen more than itself, sends news of a
watch before anything newer, and drops the watches of a connection with it.
"""

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self

from metadata.errors import MetadataError, NodeNotFoundError
from metadata.store.interface import CompareAndSet, Create, Operation
from metadata.store.memory_tree import NodeChange, parent_of
from tests.support.metadata import scripted_wire as wire
from tests.support.metadata.scripted_service import NO_SESSION, ScriptedService
from tests.support.metadata.scripted_wire import Fields, News, buffer

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"


class Standing(Enum):
    """What a server knows of the writes of other servers' clients."""

    CURRENT = auto()
    """All of them."""
    LAGGING = auto()
    """Those before the last sync or write of its own client."""
    LEADER_REPLACED = auto()
    """None: its leader was replaced and does not know it, so a sync brings nothing, and a write has
    no answer, nor has anything after it.
    """


@dataclass(eq=False, slots=True)
class _Connection:
    writer: asyncio.StreamWriter
    session_id: int = NO_SESSION
    values: dict[str, None] = field(default_factory=dict)
    """Paths whose node is watched."""
    names: dict[str, None] = field(default_factory=dict)
    """Paths whose children are watched."""


class ScriptedZooKeeper:
    """One server, from `start` to `stop`, on the loopback address."""

    def __init__(self, service: ScriptedService | None = None) -> None:
        self.service = ScriptedService() if service is None else service
        self.requests: list[str] = []
        """Names of all requests except pings, in order."""
        self.errors: dict[str, list[int]] = {}
        """Error codes with which the next requests of a name are answered without effect."""
        self.garbled: list[str] = []
        """Names of requests; the next one of each has an answer with another request's number."""
        self.unanswered: list[str] = []
        """Names of requests; the next one of each is applied, and the connection is cut instead of
        an answer.
        """
        self.held: list[Callable[[], None]] = []
        """Writes that `holds` has taken; each call applies one, unless its session has moved."""
        self.holds: list[str] = []
        """Names of writes; the next one of each has no answer, and is applied when called."""
        self.refused = 0
        """Number of connections refused because the client had seen more."""
        self.standing = Standing.CURRENT
        self._awake = asyncio.Event()
        self._awake.set()
        self._seen = 0
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        self.service.on_commit(self._committed)

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def uri(self) -> str:
        """Metadata URI of the server."""
        return f"zk://{self.address}"

    def has_session(self, session_id: int) -> bool:
        """Return whether a session was last used on a connection of this server."""
        return any(
            self.service.is_owner(session_id, connection) for connection in self._connections
        )

    async def start(self) -> Self:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def stop(self) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
        self.resume()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut all connections; clients make new ones for the same sessions."""
        for connection in self._connections:
            connection.writer.close()

    def pause(self) -> None:
        """Answer nothing, and read nothing, but keep all connections, as a paused process does."""
        self._awake.clear()

    def resume(self) -> None:
        """Continue, with what was sent meanwhile."""
        self._awake.set()

    def write(self, *operations: Operation) -> None:
        """Commit what a client of another server writes."""
        self.service.commit(operations)

    def catch_up(self) -> None:
        """See all that was committed, and send the news of it."""
        changes = self.service.changes
        while self._seen < len(changes):
            self._seen += 1
            for connection in self._connections:
                _send_news(connection, changes[self._seen - 1])

    def _committed(self) -> None:
        if self.standing is Standing.CURRENT and self._awake.is_set():
            self.catch_up()

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections[connection] = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            first = await self._frame(reader)
            if self._greet(wire.parse_greeting(first), connection):
                while answer := self._answer(Fields(await self._frame(reader)), connection):
                    writer.write(buffer(answer))
                    await writer.drain()
                await reader.read(-1)
        self._connections.pop(connection, None)
        writer.close()

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        frame = await reader.readexactly(size)
        await self._awake.wait()
        return frame

    def _greet(self, greeting: wire.Greeting, connection: _Connection) -> bool:
        """Answer the first frame; return whether the client has a session now."""
        if greeting.newest_zxid > self._zxid:
            self.refused += 1
            connection.writer.close()
            return False
        service = self.service
        end = connection.writer.close
        connection.session_id = service.attach(greeting.session_id, connection, end)
        is_live = connection.session_id != NO_SESSION
        timeout_ms = service.session_timeout_ms if is_live else 0
        connection.writer.write(wire.greeting(connection.session_id, timeout_ms))
        return is_live

    def _answer(self, fields: Fields, connection: _Connection) -> bytes | None:
        """Return the answer to a request; None if it and all later ones have none."""
        xid, number = fields.take("!ii")
        name = wire.OPERATIONS[number]
        if name == "ping":
            return self._reply(xid)
        self.requests.append(name)
        if name in self.garbled:
            self.garbled.remove(name)
            return self._reply(xid + 1_000)
        if self.errors.get(name):
            return self._reply(xid, self.errors[name].pop(0))
        if self.standing is Standing.LEADER_REPLACED and name in (*wire.WRITES, "close"):
            return None
        if name == "close":
            asyncio.get_running_loop().call_soon(self.service.end_session, connection.session_id)
            return self._reply(xid)
        if name in wire.ORDERED and not self.service.is_owner(connection.session_id, connection):
            asyncio.get_running_loop().call_soon(connection.writer.close)  # after the answer
            return self._reply(xid, wire.SESSION_MOVED)
        if name in self.holds:
            self.holds.remove(name)
            self.held.append(lambda: self._apply_late(name, fields, connection))
            return None
        answer = self._handled(xid, name, fields, connection)
        if name in self.unanswered:
            self.unanswered.remove(name)
            connection.writer.close()
            return None
        return answer

    def _handled(self, xid: int, name: str, fields: Fields, connection: _Connection) -> bytes:
        is_ordered = name in wire.ORDERED
        if self.standing is Standing.CURRENT or (self.standing is Standing.LAGGING and is_ordered):
            self.catch_up()
        handle: Callable[[Fields, _Connection], bytes] = getattr(self, f"_{name}")
        try:
            answer = handle(fields, connection)
        except MetadataError as error:
            return self._reply(xid, wire.ERRORS[type(error)])
        if name in wire.WRITES:
            self.catch_up()
        return self._reply(xid) + answer

    def _apply_late(self, name: str, fields: Fields, connection: _Connection) -> None:
        if self.service.is_owner(connection.session_id, connection):
            self._handled(0, name, fields, connection)

    @property
    def _zxid(self) -> int:
        return self._seen + 1

    def _reply(self, xid: int, error: int = 0) -> bytes:
        return wire.reply(xid, self._zxid, error)

    # Requests

    @property
    def _missed(self) -> int:
        return self.service.tree.change_count - self._seen

    def _sync(self, fields: Fields, _: _Connection) -> bytes:
        return buffer(fields.text().encode())

    def _get(self, fields: Fields, connection: _Connection) -> bytes:
        path, is_watched = fields.text(), fields.flag()
        stored = self.service.tree.get(path, self._missed)
        if is_watched:
            connection.values[path] = None
        return buffer(stored.value) + wire.stat(stored, self._changed_at(path))

    def _gets(self, fields: Fields, _: _Connection) -> bytes:
        results: list[bytes | MetadataError] = []
        for path in wire.parse_reads(fields):
            try:
                stored = self.service.tree.get(path, self._missed)
            except MetadataError as error:
                results.append(error)
            else:
                results.append(buffer(stored.value) + wire.stat(stored, self._changed_at(path)))
        return wire.read_results(results)

    def _exists(self, fields: Fields, connection: _Connection) -> bytes:
        path, is_watched = fields.text(), fields.flag()
        if is_watched:
            connection.values[path] = None
        return wire.stat(self.service.tree.get(path, self._missed), self._changed_at(path))

    def _children(self, fields: Fields, connection: _Connection) -> bytes:
        path, is_watched = fields.text(), fields.flag()
        stored = self.service.tree.get(path, self._missed)
        names = [buffer(child.encode()) for child in self.service.tree.children(path, self._missed)]
        if is_watched:
            connection.names[path] = None
        listing = struct.pack("!i", len(names)) + b"".join(names)
        return listing + wire.stat(stored, self._changed_at(path))

    def _create(self, fields: Fields, connection: _Connection) -> bytes:
        return self._apply([wire.parse_operation("create", fields)], connection)[0]

    def _set(self, fields: Fields, connection: _Connection) -> bytes:
        return self._apply([wire.parse_operation("set", fields)], connection)[0]

    def _delete(self, fields: Fields, connection: _Connection) -> bytes:
        return self._apply([wire.parse_operation("delete", fields)], connection)[0]

    def _multi(self, fields: Fields, connection: _Connection) -> bytes:
        operations = wire.parse_multi(fields)
        try:
            return wire.multi_results(operations, self._apply(operations, connection))
        except MetadataError as error:
            return wire.multi_errors(operations, error)

    def _apply(self, operations: list[Operation], connection: _Connection) -> list[bytes]:
        checked = [operation for operation in operations if not wire.is_any(operation)]
        self.service.commit(checked, connection.session_id)
        return [self._result(operation) for operation in operations]

    def _result(self, operation: Operation) -> bytes:
        match operation:
            case Create(path):
                return buffer(path.encode())
            case CompareAndSet(path):
                with contextlib.suppress(NodeNotFoundError):
                    return wire.stat(self.service.tree.get(path), self._changed_at(path))
                return b""
            case _:
                return b""

    def _changed_at(self, path: str) -> wire.ChangedAt:
        """Return the numbers of the last changes of a node and of its children, as seen here."""
        seen = self.service.changes[: self._seen]
        own = [change.number for change in seen if change.path == path]
        below = [
            change.number
            for change in seen
            if change.alters_children and parent_of(change.path) == path
        ]
        return wire.ChangedAt(max(own, default=0) + 1, max(below, default=0) + 1)


def _send_news(connection: _Connection, change: NodeChange) -> None:
    kind, above = wire.news_of(change), parent_of(change.path)
    reported: list[tuple[News, str]] = []
    if change.path in connection.values:
        del connection.values[change.path]
        reported.append((kind, change.path))
    if kind is News.DELETED and change.path in connection.names:
        del connection.names[change.path]
        if not reported:
            reported.append((kind, change.path))
    if kind is not News.CHANGED and above in connection.names:
        del connection.names[above]
        reported.append((News.CHILD, above))
    for each in reported:
        connection.writer.write(wire.news(*each))


class ScriptedEnsemble:
    """Servers of one service, from `start` to `stop`."""

    def __init__(self, service: ScriptedService, count: int = 3) -> None:
        self.service = service
        self.servers = [ScriptedZooKeeper(service) for _ in range(count)]

    @property
    def uri(self) -> str:
        """Metadata URI that names all servers."""
        return "zk://" + ",".join(server.address for server in self.servers)

    async def start(self) -> Self:
        """Start all servers."""
        for server in self.servers:
            await server.start()
        return self

    async def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            await server.stop()

    def server_of(self, session_id: int) -> ScriptedZooKeeper:
        """Return the server that a session is connected to."""
        (server,) = (keeper for keeper in self.servers if keeper.has_session(session_id))
        return server

    def others(self, server: ScriptedZooKeeper) -> list[ScriptedZooKeeper]:
        """Return all servers but one."""
        return [keeper for keeper in self.servers if keeper is not server]
