"""Requests and answers of a scripted ZooKeeper server, to bytes and back. Pure.

Leaves their meaning to `scripted_zookeeper`.

Format: ZooKeeper's wire protocol (jute): frames of a big-endian int32 length and a body. A request
is xid int, type int and its fields; an answer is xid int, zxid long, error int and its fields. News
of a watch are an answer with the xid -1.

Source: ZooKeeper 3.9, `zookeeper.jute`.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored
from metadata.store.memory_tree import NodeChange

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
    22: "gets",
}
WRITES: Final = ("create", "delete", "set", "multi")
ORDERED: Final = (*WRITES, "sync")
"""Requests that the leader sees."""
ERRORS: Final = {
    NodeNotFoundError: -101,
    VersionConflictError: -103,
    NodeExistsError: -110,
    NodeNotEmptyError: -111,
}
SESSION_MOVED: Final = -118
ROLLED_BACK: Final = -2
ANY_VERSION: Final = -1
EPHEMERAL: Final = 1
GET: Final = 4
NEWS_XID: Final = -1
CONNECTED: Final = 3
PASSWORD: Final = bytes(16)


NUMBERS: Final = {Create: 1, Delete: 2, CompareAndSet: 5, Check: 13}


class News(IntEnum):
    """Kind of change that a watch reports."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


@dataclass(frozen=True, slots=True)
class Greeting:
    """A client's request for a session; `session_id` is 0 for a new one."""

    newest_zxid: int
    session_id: int


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

    def flag(self) -> bool:
        return bool(self.take("!B")[0])

    def buffer(self) -> bytes:
        size = max(0, self.number())
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()


def buffer(data: bytes) -> bytes:
    """Return the encoding of a buffer or a text."""
    return struct.pack("!i", len(data)) + data


@dataclass(frozen=True, slots=True)
class ChangedAt:
    """Transactions that last changed a node, and the names below it."""

    node: int
    names: int


def stat(stored: Stored, at: ChangedAt) -> bytes:
    """Return a node's statistics, as far as clients use them."""
    owner, version = int(stored.ephemeral), stored.version
    times = stored.created_ms or 0, stored.modified_ms or 0
    return struct.pack("!qqqqiiiqiiq", 1, at.node, *times, version, 0, 0, owner, 0, 0, at.names)


def parse_greeting(data: bytes) -> Greeting:
    """Return the contents of a connection's first frame."""
    _, newest_zxid, _, session_id = Fields(data).take("!iqiq")
    return Greeting(newest_zxid, session_id)


def greeting(session_id: int, timeout_ms: int) -> bytes:
    """Return the answer to a connection's first frame; a timeout of 0 refuses the session."""
    head = struct.pack("!iiq", 0, timeout_ms, session_id)
    return buffer(head + buffer(PASSWORD) + b"\x00")


def reply(xid: int, zxid: int, error: int = 0) -> bytes:
    """Return the header of an answer."""
    return struct.pack("!iqi", xid, zxid, error)


def news(kind: News, path: str) -> bytes:
    """Return the frame that reports a change to a watch."""
    body = struct.pack("!ii", kind, CONNECTED) + buffer(path.encode())
    return buffer(reply(NEWS_XID, -1) + body)


def news_of(change: NodeChange) -> News:
    """Return the kind of a change, as a watch of the node's data reports it."""
    if not change.exists_now:
        return News.DELETED
    return News.CREATED if change.before is None else News.CHANGED


def parse_multi(fields: Fields) -> list[Operation]:
    """Return the operations of a multi."""
    operations: list[Operation] = []
    while not (header := fields.take("!iBi"))[1]:
        operations.append(parse_operation(OPERATIONS[header[0]], fields))
    return operations


def multi_results(operations: list[Operation], results: list[bytes]) -> bytes:
    """Return the answer to a multi that was applied."""
    numbers = [NUMBERS[type(operation)] for operation in operations]
    headers = [struct.pack("!iBi", number, 0, 0) for number in numbers]
    return _joined(headers, results)


def multi_errors(operations: list[Operation], error: MetadataError) -> bytes:
    """Return the answer to a multi that failed."""
    failing = ERRORS[type(error)]
    codes = [failing if _paths_match(operation, error) else ROLLED_BACK for operation in operations]
    headers = [struct.pack("!iBi", -1, 0, code) for code in codes]
    return _joined(headers, [struct.pack("!i", code) for code in codes])


def _joined(headers: list[bytes], results: list[bytes]) -> bytes:
    pairs = zip(headers, results, strict=True)
    return b"".join(a + b for a, b in pairs) + struct.pack("!iBi", -1, 1, -1)


def parse_reads(fields: Fields) -> list[str]:
    """Return the paths of a multiRead."""
    paths: list[str] = []
    while not fields.take("!iBi")[1]:
        paths.append(fields.text())
        assert not fields.flag(), "its reads are not watched"
    return paths


def read_results(results: list[bytes | MetadataError]) -> bytes:
    """Return the answer to a multiRead."""
    codes = [0 if isinstance(result, bytes) else ERRORS[type(result)] for result in results]
    headers = [struct.pack("!iBi", -1 if code else GET, 0, code) for code in codes]
    return _joined(
        headers,
        [
            each if isinstance(each, bytes) else struct.pack("!i", code)
            for each, code in zip(results, codes, strict=True)
        ],
    )


def parse_operation(name: str, fields: Fields) -> Operation:
    """Return a write, or a check of a multi."""
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


def is_any(operation: Operation) -> bool:
    """Return whether an operation is a check that succeeds at any version."""
    return isinstance(operation, Check) and operation.expected == ANY_VERSION


def _paths_match(operation: Operation, error: MetadataError) -> bool:
    found = getattr(error, "path", "")
    return operation.path == found or operation.path.rpartition("/")[0] == found
