"""Bytes of requests and replies, in msgpack. Pure.

Leaves frames to `frames.py`, and errors in replies to `failures.py`.

Format: a request is an array of its kind, its number and its fields; a reply an array of a code,
the request's number and the result. The code is OK, FAILED (the result is an error), or EVENT (the
number is that of a watch, and there is no result). An operation of a multi is an array of its kind
and its fields.

Invariant: for any bytes, decoding returns a value or raises GatewayFormatError.

Source: docs/formats.md, "Connections to a gateway".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

import msgpack

from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.frames import framed
from metadata.gateway.messages import (
    CLIENT_NAME_CHARACTERS_MAX,
    TOKEN_BYTES,
    Children,
    CloseSession,
    CreateNode,
    Get,
    Hello,
    Multi,
    Ping,
    Request,
    Unwatch,
    Watch,
    Welcome,
    is_path,
)
from metadata.ids import Version
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    bool_of,
    bytes_of,
    int_of,
    text_of,
)
from metadata.store.interface import (
    MULTI_OPERATIONS_MAX,
    Check,
    CompareAndSet,
    Create,
    Delete,
    Operation,
    Stored,
)

T = TypeVar("T")

NUMBER_MAX: Final = 2**32 - 1
ITEMS_MAX: Final = MULTI_OPERATIONS_MAX + 16
"""Maximum number of items in one array: the unpacker allocates the announced length."""

NAMES_SEPARATOR: Final = "/"

_INT64_MAX: Final = 2**63 - 1
_VERSION_MAX: Final = 2**31 - 1


class Kind(IntEnum):
    """Kind of a request."""

    HELLO = 0
    PING = 1
    GET = 2
    CHILDREN = 3
    CREATE = 4
    MULTI = 5
    WATCH = 6
    UNWATCH = 7
    CLOSE = 8


class Code(IntEnum):
    """First field of a reply."""

    OK = 0
    FAILED = 1
    EVENT = 2


class _Act(IntEnum):
    CREATE = 0
    COMPARE_AND_SET = 1
    DELETE = 2
    CHECK = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply whose result is not decoded yet: the request decides its form."""

    code: Code
    number: int
    result: Packed


def request_frame(number: int, request: Request) -> bytes:
    """Return the frame of a request."""
    return framed(msgpack.packb([*_head(request, number), *_fields(request)]))


def decode_request(body: bytes) -> tuple[int, Request]:
    """Return the number of a request, and the request. Raises GatewayFormatError."""
    fields = _array(body)
    try:
        kind, number = Kind(int_of(_first(fields), 0, max(Kind))), int_of(fields[1], 0, NUMBER_MAX)
        return number, _DECODERS[kind](fields[2:])
    except (FieldError, IndexError, ValueError) as error:
        raise GatewayFormatError(f"no request: {error}") from error


def reply_frame(code: Code, number: int, result: Packed = None) -> bytes:
    """Return the frame of a reply."""
    return framed(msgpack.packb([int(code), number, result]))


def decode_reply(body: bytes) -> Reply:
    """Return a reply. Raises GatewayFormatError."""
    fields = _array(body)
    try:
        code, number, result = fields
        return Reply(Code(int_of(code, 0, max(Code))), int_of(number, 0, NUMBER_MAX), result)
    except (FieldError, ValueError) as error:
        raise GatewayFormatError(f"no reply: {error}") from error


# -- results


def packed_welcome(welcome: Welcome) -> Packed:
    """Return the result of a hello."""
    return [
        welcome.version,
        welcome.session_id,
        welcome.token,
        welcome.session_timeout_ms,
        welcome.watches_max,
    ]


def packed_names(names: Sequence[str]) -> Packed:
    """Return the result of a read of names: one text, because no name contains a slash."""
    return NAMES_SEPARATOR.join(names)


def packed_stored(stored: Stored) -> Packed:
    """Return the result of a read of a node."""
    return [stored.value, stored.version, stored.ephemeral]


def welcome_of(result: Packed) -> Welcome:
    """Return the welcome. Raises GatewayFormatError."""

    def read() -> Welcome:
        version, session_id, token, timeout_ms, watches_max = array_of(result)
        return Welcome(
            int_of(version, 1, NUMBER_MAX),
            int_of(session_id, 1, _INT64_MAX),
            bytes_of(token, TOKEN_BYTES),
            int_of(timeout_ms, 1, NUMBER_MAX),
            int_of(watches_max, 1, NUMBER_MAX),
        )

    return _checked("a welcome", read)


def stored_of(result: Packed) -> Stored:
    """Return the node. Raises GatewayFormatError."""

    def read() -> Stored:
        value, version, ephemeral = array_of(result)
        return Stored(bytes_of(value), _version(version), bool_of(ephemeral))

    return _checked("a node", read)


def names_of(result: Packed) -> list[str]:
    """Return the names below a node. Raises GatewayFormatError."""
    names = _checked("a list of names", lambda: text_of(result))
    return names.split(NAMES_SEPARATOR) if names else []


def versions_of(result: Packed) -> list[Version]:
    """Return the versions after a write. Raises GatewayFormatError."""
    return _checked("a list of versions", lambda: [_version(item) for item in array_of(result)])


def _checked(what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise GatewayFormatError(f"it is not {what}: {error}") from error


# -- requests


def _head(request: Request, number: int) -> list[Packed]:
    return [int(_KINDS[type(request)]), number]


def _fields(request: Request) -> list[Packed]:
    match request:
        case Hello(low, high, session_id, token, timeout_ms, name):
            return [low, high, session_id, token, timeout_ms, name]
        case Get(path, fresh, agreed) | Children(path, fresh, agreed):
            return [path, fresh, agreed]
        case CreateNode(operation, make_parents):
            return [operation.path, operation.value, operation.ephemeral, make_parents]
        case Multi(operations):
            return [[_packed_operation(change) for change in operations]]
        case Watch(number, path, of_children):
            return [number, path, of_children]
        case Unwatch(number):
            return [number]
        case Ping() | CloseSession():
            return []


def _packed_operation(operation: Operation) -> Packed:
    match operation:
        case Create(path, value, ephemeral):
            return [int(_Act.CREATE), path, value, ephemeral]
        case CompareAndSet(path, value, expected):
            return [int(_Act.COMPARE_AND_SET), path, value, expected]
        case Delete(path, expected):
            return [int(_Act.DELETE), path, expected]
        case Check(path, expected):
            return [int(_Act.CHECK), path, expected]


def _hello(fields: list[Packed]) -> Hello:
    low, high, session_id, token, timeout_ms, name = fields
    text = text_of(name)
    if len(text) > CLIENT_NAME_CHARACTERS_MAX or not text.isprintable():
        raise FieldError("the client's name is too long, or not printable")
    given = bytes_of(token)
    if len(given) not in (0, TOKEN_BYTES):
        raise FieldError("the token has another length")
    return Hello(
        int_of(low, 1, NUMBER_MAX),
        int_of(high, 1, NUMBER_MAX),
        int_of(session_id, 0, _INT64_MAX),
        given,
        int_of(timeout_ms, 1, NUMBER_MAX),
        text,
    )


def _get(fields: list[Packed]) -> Get:
    path, fresh, agreed = fields
    return Get(_path(path), bool_of(fresh), bool_of(agreed))


def _children(fields: list[Packed]) -> Children:
    path, fresh, agreed = fields
    return Children(_path(path), bool_of(fresh), bool_of(agreed))


def _create(fields: list[Packed]) -> CreateNode:
    path, value, ephemeral, make_parents = fields
    made = Create(_path(path), bytes_of(value), bool_of(ephemeral))
    return CreateNode(made, bool_of(make_parents))


def _multi(fields: list[Packed]) -> Multi:
    (packed,) = fields
    operations = tuple(_operation(array_of(item)) for item in array_of(packed))
    if not 0 < len(operations) <= MULTI_OPERATIONS_MAX:
        raise FieldError(f"a multi has 1 to {MULTI_OPERATIONS_MAX} operations")
    return Multi(operations)


def _operation(fields: list[Packed]) -> Operation:
    act, path = _Act(int_of(_first(fields), 0, max(_Act))), _path(fields[1])
    match act:
        case _Act.CREATE:
            value, ephemeral = fields[2:]
            return Create(path, bytes_of(value), bool_of(ephemeral))
        case _Act.COMPARE_AND_SET:
            value, expected = fields[2:]
            return CompareAndSet(path, bytes_of(value), _version(expected))
        case _Act.DELETE:
            (expected,) = fields[2:]
            return Delete(path, _version(expected))
        case _Act.CHECK:
            (expected,) = fields[2:]
            return Check(path, _version(expected))


def _watch(fields: list[Packed]) -> Watch:
    number, path, of_children = fields
    return Watch(int_of(number, 0, NUMBER_MAX), _path(path), bool_of(of_children))


def _unwatch(fields: list[Packed]) -> Unwatch:
    (number,) = fields
    return Unwatch(int_of(number, 0, NUMBER_MAX))


def _nothing(kind: type[Ping] | type[CloseSession]) -> Callable[[list[Packed]], Request]:
    def decode(fields: list[Packed]) -> Request:
        if fields:
            raise FieldError("it has no fields")
        return kind()

    return decode


def _path(field: Packed) -> str:
    path = text_of(field)
    if not is_path(path):
        raise FieldError(f"{path[:100]!r} is not a path")
    return path


def _version(field: Packed) -> Version:
    return Version(int_of(field, 0, _VERSION_MAX))


def _first(fields: list[Packed]) -> Packed:
    return fields[0]


def _array(body: bytes) -> list[Packed]:
    try:
        fields = msgpack.unpackb(
            body,
            strict_map_key=True,
            unicode_errors="strict",
            max_array_len=ITEMS_MAX,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException) as error:
        raise GatewayFormatError(f"it is not msgpack ({error})") from error
    if not isinstance(fields, list):
        raise GatewayFormatError("it is not an array")
    return fields


_KINDS: Final[dict[type[Request], Kind]] = {
    Hello: Kind.HELLO,
    Ping: Kind.PING,
    Get: Kind.GET,
    Children: Kind.CHILDREN,
    CreateNode: Kind.CREATE,
    Multi: Kind.MULTI,
    Watch: Kind.WATCH,
    Unwatch: Kind.UNWATCH,
    CloseSession: Kind.CLOSE,
}
_DECODERS: Final[dict[Kind, Callable[[list[Packed]], Request]]] = {
    Kind.HELLO: _hello,
    Kind.PING: _nothing(Ping),
    Kind.GET: _get,
    Kind.CHILDREN: _children,
    Kind.CREATE: _create,
    Kind.MULTI: _multi,
    Kind.WATCH: _watch,
    Kind.UNWATCH: _unwatch,
    Kind.CLOSE: _nothing(CloseSession),
}
