"""ZooKeeper server of a test: it lags, is led by a replaced leader, or refuses, on request.

Leaves the meaning of operations to `metadata.store.memory_tree`. It is one server of an ensemble:
the tree is what a quorum has committed, and this server's own state may be older. There are no
watches, access rights or session timeouts.

Format: ZooKeeper's wire protocol (jute): frames of a big-endian int32 length and a body. A request
is xid int, type int and its fields; an answer is xid int, zxid long, error int and its fields.

Source: ZooKeeper 3.9, `zookeeper.jute`.
"""

import asyncio
import contextlib
import struct
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self

from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored
from metadata.store.memory_tree import MemoryTree

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATIONS: Final = {
    -11: "close",
    1: "create",
    2: "delete",
    3: "exists",
    4: "get",
    5: "set",
    9: "sync",
    11: "ping",
    12: "children",
    13: "check",
    14: "multi",
}
WRITES: Final = ("create", "delete", "set", "multi")
ERRORS: Final = {
    NodeNotFoundError: -101,
    VersionConflictError: -103,
    NodeExistsError: -110,
    NodeNotEmptyError: -111,
}
ROLLED_BACK: Final = -2
ANY_VERSION: Final = -1
EPHEMERAL: Final = 1
SESSION_TIMEOUT_MS: Final = 60_000
PASSWORD: Final = bytes(16)


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


class Fields:
    """Reader of a request's fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Read numbers and booleans."""
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def number(self) -> int:
        return self.take("!i")[0]

    def buffer(self) -> bytes:
        size = max(0, self.number())
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()


def buffer(data: bytes) -> bytes:
    """Return the encoding of a buffer or a text."""
    return struct.pack("!i", len(data)) + data


def stat(stored: Stored) -> bytes:
    """Return a node's statistics, of which clients use the version and the owner."""
    version = stored.version
    return struct.pack(
        "!qqqqiiiqiiq", 1, version + 1, 0, 0, version, 0, 0, int(stored.ephemeral), 0, 0, 1
    )


class ScriptedZooKeeper:
    """One server, from `start` to `stop`, on the loopback address."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.requests: list[str] = []
        """Names of all requests except pings, in order."""
        self.errors: dict[str, list[int]] = {}
        """Error codes with which the next requests of a name are answered without effect."""
        self.garbled: list[str] = []
        """Names of requests; the next one of each has an answer with another request's number."""
        self.standing = Standing.CURRENT
        self._seen = 0
        self._session_id = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def uri(self) -> str:
        """Metadata URI of the server."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"zk://{host}:{port}"

    async def start(self) -> Self:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut all connections; clients make new ones for the same sessions."""
        for connection in self._connections:
            connection.close()

    def write(self, *operations: Operation) -> None:
        """Commit what a client of another server writes."""
        self.tree.apply(operations, 0)

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            session_id = self._greet(Fields(await _frame(reader)), writer)
            while answer := self._answer(Fields(await _frame(reader)), session_id):
                writer.write(buffer(answer))
                await writer.drain()
            await reader.read(-1)
        self._connections.discard(writer)
        writer.close()

    def _greet(self, fields: Fields, writer: asyncio.StreamWriter) -> int:
        _, _, _, session_id = fields.take("!iqiq")
        if not session_id:
            self._session_id += 1
            session_id = self._session_id
        greeting = struct.pack("!iiq", 0, SESSION_TIMEOUT_MS, session_id)
        writer.write(buffer(greeting + buffer(PASSWORD) + b"\x00"))
        return session_id

    def _answer(self, fields: Fields, session_id: int) -> bytes | None:
        """Return the answer to a request; None if it and all later ones have none."""
        xid, number = fields.take("!ii")
        name = OPERATIONS[number]
        if name == "ping":
            return self._reply(xid)
        self.requests.append(name)
        if name in self.garbled:
            self.garbled.remove(name)
            return self._reply(xid + 1_000)
        if self.errors.get(name):
            return self._reply(xid, self.errors[name].pop(0))
        is_ordered = name in (*WRITES, "sync")
        if (self.standing is Standing.LEADER_REPLACED and name in WRITES) or name == "close":
            return None
        if self.standing is Standing.CURRENT or (self.standing is Standing.LAGGING and is_ordered):
            self._seen = self.tree.change_count
        handle: Callable[[Fields, int], bytes] = getattr(self, f"_{name}")
        try:
            return self._reply(xid) + handle(fields, session_id)
        except MetadataError as error:
            return self._reply(xid, ERRORS[type(error)])
        finally:
            if name in WRITES:
                self._seen = self.tree.change_count

    def _reply(self, xid: int, error: int = 0) -> bytes:
        return struct.pack("!iqi", xid, self._seen + 1, error)

    # Requests

    @property
    def _missed(self) -> int:
        return self.tree.change_count - self._seen

    def _sync(self, fields: Fields, _: int) -> bytes:
        return buffer(fields.text().encode())

    def _get(self, fields: Fields, _: int) -> bytes:
        stored = self.tree.get(fields.text(), self._missed)
        return buffer(stored.value) + stat(stored)

    def _exists(self, fields: Fields, _: int) -> bytes:
        return stat(self.tree.get(fields.text(), self._missed))

    def _children(self, fields: Fields, _: int) -> bytes:
        path = fields.text()
        stored = self.tree.get(path, self._missed)
        names = [buffer(each.encode()) for each in self.tree.children(path, self._missed)]
        return struct.pack("!i", len(names)) + b"".join(names) + stat(stored)

    def _create(self, fields: Fields, session_id: int) -> bytes:
        return self._apply([_operation("create", fields)], session_id)[0]

    def _set(self, fields: Fields, session_id: int) -> bytes:
        return self._apply([_operation("set", fields)], session_id)[0]

    def _delete(self, fields: Fields, session_id: int) -> bytes:
        return self._apply([_operation("delete", fields)], session_id)[0]

    def _multi(self, fields: Fields, session_id: int) -> bytes:
        numbers: list[int] = []
        operations: list[Operation] = []
        while not (header := fields.take("!iBi"))[1]:
            numbers.append(header[0])
            operations.append(_operation(OPERATIONS[header[0]], fields))
        try:
            results = self._apply(operations, session_id)
            headers = [struct.pack("!iBi", number, 0, 0) for number in numbers]
        except MetadataError as error:
            failing = ERRORS[type(error)]
            codes = [failing if _paths_match(each, error) else ROLLED_BACK for each in operations]
            results = [struct.pack("!i", code) for code in codes]
            headers = [struct.pack("!iBi", -1, 0, code) for code in codes]
        pairs = zip(headers, results, strict=True)
        return b"".join(a + b for a, b in pairs) + struct.pack("!iBi", -1, 1, -1)

    def _apply(self, operations: list[Operation], session_id: int) -> list[bytes]:
        checked = [each for each in operations if not _is_any(each)]
        self.tree.apply(checked, session_id)
        return [self._result(each) for each in operations]

    def _result(self, operation: Operation) -> bytes:
        match operation:
            case Create(path):
                return buffer(path.encode())
            case CompareAndSet(path):
                return stat(self.tree.get(path))
            case _:
                return b""


def _operation(name: str, fields: Fields) -> Operation:
    path = fields.text()
    match name:
        case "create":
            data = fields.buffer()
            for _ in range(fields.number()):  # access rights
                fields.take("!i")
                fields.text()
                fields.text()
            return Create(path, data, bool(fields.number() & EPHEMERAL))
        case "set":
            data = fields.buffer()
            return CompareAndSet(path, data, Version(fields.number()))
        case "delete":
            return Delete(path, Version(fields.number()))
        case _:
            return Check(path, Version(fields.number()))


def _is_any(operation: Operation) -> bool:
    return isinstance(operation, Check) and operation.expected == ANY_VERSION


def _paths_match(operation: Operation, error: MetadataError) -> bool:
    found = getattr(error, "path", "")
    return operation.path == found or operation.path.rpartition("/")[0] == found


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(size)
