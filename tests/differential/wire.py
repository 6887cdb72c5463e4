"""Kafka's protocol over one plain connection, which can also send invalid requests.

Leaves the bytes of messages to kafka-python's schemas, those of consumer groups (KIP-848), which it
lacks, to schemas/, and the requests to the `*_cases` modules.

Invariants: one request at a time on a connection; a connection that failed is never used again.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias, Union, cast

import kafka.protocol.admin as admin_messages
import kafka.protocol.consumer as consumer_messages
import kafka.protocol.metadata as metadata_messages
import kafka.protocol.producer as producer_messages
import kafka.protocol.sasl as sasl_messages
from kafka.protocol.api_message import ApiMessage

Tree: TypeAlias = Union[  # noqa: UP007  # it names itself
    bool, int, float, str, bytes, Sequence["Tree"], Mapping[str, "Tree"], None
]
"""A message as plain values, its fields by their names."""

ANSWER_TIMEOUT_S: Final = 40.0
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
CLIENT_ID: Final = "differential"


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json="tests.differential.schemas"):
    """KIP-848: heartbeat of a member, with its owned and wanted partitions."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json="tests.differential.schemas"):
    """KIP-848: assignment of the member."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="tests.differential.schemas"):
    """KIP-848: request for groups of the new protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="tests.differential.schemas"):
    """KIP-848: groups of the new protocol."""


OWN_MESSAGES: Final = {
    message.__name__: message
    for message in (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
}
MESSAGE_MODULES: Final = (
    admin_messages,
    consumer_messages,
    metadata_messages,
    producer_messages,
    sasl_messages,
)


class ConnectionClosedError(Exception):
    """The broker closed the connection instead of answering."""


class NoAnswerError(Exception):
    """No answer came within the time limit of an answer."""


class _Field(Protocol):
    name: str
    data_class: type

    def is_struct(self) -> bool: ...
    def is_struct_array(self) -> bool: ...


class _Schema(Protocol):
    fields: Mapping[str, _Field]


def message_class(name: str) -> type[ApiMessage]:
    """Return the class of a message, such as "FetchRequest"."""
    if name in OWN_MESSAGES:
        return cast("type[ApiMessage]", OWN_MESSAGES[name])
    for module in MESSAGE_MODULES:
        if hasattr(module, name):
            return cast("type[ApiMessage]", getattr(module, name))
    raise KeyError(name)


def build(data_class: type, version: int, values: Mapping[str, Tree]) -> object:
    """Make a message, or a part of one, from plain values; a missing field has its default."""
    schema = cast("_Schema", data_class._struct)  # type: ignore[attr-defined]
    made: dict[str, object] = {}
    for name, value in values.items():
        field = schema.fields[name]
        if value is not None and field.is_struct_array():
            items = cast("Sequence[Mapping[str, Tree]]", value)
            made[name] = [build(field.data_class, version, item) for item in items]
        elif value is not None and field.is_struct():
            made[name] = build(field.data_class, version, cast("Mapping[str, Tree]", value))
        else:
            made[name] = value
    return data_class(version=version, **made)


def encode_request(api: str, version: int, values: Mapping[str, Tree]) -> bytes:
    """Return the frame of a request, length and header included."""
    request = cast("ApiMessage", build(message_class(f"{api}Request"), version, values))
    request.with_header(correlation_id=1, client_id=CLIENT_ID)
    return bytes(request.encode(header=True, framed=True))


def bare_request(api_key: int, version: int, body: bytes = b"") -> bytes:
    """Return the frame of a request with a header of version 1, whatever its key and version."""
    client_id = CLIENT_ID.encode()
    header = struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def decode_response(api: str, version: int, frame: bytes) -> Tree:
    """Return the fields of a response, whose frame comes without its length."""
    response = message_class(f"{api}Response").decode(frame, version=version, header=True)
    return cast("Tree", response.to_dict(json=False))


class Wire:
    """One connection, with TLS if there is a context for it."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, api: str, version: int, values: Mapping[str, Tree]) -> Tree:
        """Send a request and return the answer's fields. Raises as `exchange`."""
        frame = await self.exchange(encode_request(api, version, values))
        return decode_response(api, version, frame)

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, limit=FRAME_BYTES_MAX, ssl=self._context
        )

    async def tell(self, frame: bytes) -> None:
        """Send a request that has no answer."""
        if self._writer is None:
            await self.connect()
        assert self._writer is not None
        self._writer.write(frame)
        await self._writer.drain()

    async def exchange(self, frame: bytes) -> bytes:
        """Send a frame and return the next one. Raises ConnectionClosedError, NoAnswerError."""
        try:
            await self.tell(frame)
            return await asyncio.wait_for(self._next_frame(), ANSWER_TIMEOUT_S)
        except (OSError, asyncio.IncompleteReadError) as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise NoAnswerError from error
            raise ConnectionClosedError from error

    async def _next_frame(self) -> bytes:
        assert self._reader is not None
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this end knows."""
        return self._writer is not None

    def abort(self) -> None:
        """Close it at once. TLS would wait for a broker that does not read this connection."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def aclose(self) -> None:
        """Close it; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None
