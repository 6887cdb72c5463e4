"""Codec of the headers of requests and responses.

Leaves cutting the stream into frames to the server, and bodies to the codecs.

Format of a request after its length, big-endian: API key i16, version i16, correlation id i32,
client id (a string with an i16 length, also in flexible versions), in flexible versions tagged
fields; then the body. A response after its length: correlation id i32, in flexible versions
tagged fields; then the body. The header of an answer to ApiVersions never has tagged fields,
because its reader does not know the version.

Invariant: only the first 8 bytes are read of a frame whose API or version is not served.

Source: Kafka's protocol guide, "Request Header"; KIP-482, KIP-511.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.primitives import DAMAGED, NO_TAGS, read_string, skip_tags
from broker_layer.kafka.versions import SERVED, ApiKey

Buffer = bytes | bytearray | memoryview

LENGTH_BYTES: Final = 4
REQUEST_HEADER_BYTES_MIN: Final = 10
"""API key, version, correlation id, and the length of a null client id."""

_START = struct.Struct(">hhi")
_RESPONSE = struct.Struct(">ii")
_APIS: Final = {int(key): (key, *SERVED[key]) for key in ApiKey}


class RequestHeader(NamedTuple):
    """Header of a request; the body begins at `body_start` of the frame."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """Read the header of a frame, which is given without its length.

    Raises UnsupportedVersionError if the API or its version is not served. Only ApiVersions has an
    answer for this case (`messages.refuse_api_versions`); for others the connection must be closed.
    Raises KafkaFrameError if the header is damaged.
    """
    if len(frame) < REQUEST_HEADER_BYTES_MIN:
        raise KafkaFrameError(f"a request has only {len(frame)} B")
    number, version, correlation_id = _START.unpack_from(frame)
    api = _APIS.get(number)
    if api is None or not api[1] <= version <= api[2]:
        raise UnsupportedVersionError(number, version, correlation_id)
    try:
        client_id, position = read_string(frame, _START.size, is_flexible=False)
        if version >= api[3]:
            position = skip_tags(frame, position)
    except DAMAGED as error:
        raise KafkaFrameError(f"the header of a request is damaged: {error}") from error
    return RequestHeader(api[0], version, correlation_id, client_id, position)


def response_frame(
    api_key: ApiKey, version: int, correlation_id: int, body: Sequence[Buffer]
) -> list[Buffer]:
    """Put the length and the header before a body; the body's buffers are not copied."""
    length = sum(map(len, body)) + LENGTH_BYTES
    if version < SERVED[api_key].flexible_from or api_key == ApiKey.API_VERSIONS:
        return [_RESPONSE.pack(length, correlation_id), *body]
    return [_RESPONSE.pack(length + 1, correlation_id) + NO_TAGS, *body]
