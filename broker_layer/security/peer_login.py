"""Login of a broker or a command at a broker, at the begin of a connection.

Leaves the messages of the mechanism to `quire.identity.sasl`, and the requests that follow to
`broker_layer.peer_connection`.

Invariants: a password is sent only over TLS. What the other side says is shown in errors up to
SHOWN_CHARACTERS.

Format: Kafka's frames without flexible headers. A request after its length: API key i16, version
i16, correlation id i32, client id (i16 length), body. A response: correlation id i32, body.

Source: KIP-43, KIP-152, KIP-368.
"""

import asyncio
import struct
from typing import Final, TypeVar

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import (
    ApiMessage,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_response,
    encode_request,
)
from broker_layer.kafka.versions import ApiKey
from quire.identity.errors import SaslError
from quire.identity.sasl.mechanism import Mechanism, run_at_once
from quire.identity.sasl_access import PLAIN_NEEDS_TLS, SaslAccess

VERSION: Final = 1
"""Version of both requests: the last one without flexible headers."""
FRAME_BYTES_MAX: Final = 64 * 1024
MESSAGES_MAX: Final = 8
"""Messages of one login; SCRAM has two."""
SHOWN_CHARACTERS: Final = 256
CLIENT_ID: Final = b"quire-login"

_HEAD: Final = struct.Struct(">ihhih")
_SIZE: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">i")

MessageT = TypeVar("MessageT", bound="ApiMessage")


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: SaslAccess
) -> int:
    """Log in on a new connection; return the time for which the login holds, in ms, 0 for ever.

    Raises SecurityError if the broker refuses or cannot be trusted, KafkaFrameError, OSError,
    EOFError.
    """
    if access.mechanism is Mechanism.PLAIN and writer.get_extra_info("ssl_object") is None:
        raise SaslError(PLAIN_NEEDS_TLS)
    exchange = access.begin(run_at_once)
    request = SaslHandshakeRequest(mechanism=access.mechanism.value)
    shaken = await ask(reader, writer, request, SaslHandshakeResponse)
    if shaken.error_code != ErrorCode.NONE:
        offered = _shown(", ".join(shaken.mechanisms)) or "none"
        raise SaslError(
            f"the broker's listener does not take {access.mechanism}: it takes {offered}"
        )
    message = exchange.begin()
    for _ in range(MESSAGES_MAX):
        answer = await ask(
            reader, writer, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
        )
        if answer.error_code != ErrorCode.NONE:
            why = _shown(answer.error_message or f"error {answer.error_code}")
            raise SaslError(f"the broker refuses the user {access.user!r}: {why}")
        response = await exchange.respond(bytes(answer.auth_bytes))
        if response is None:
            return int(answer.session_lifetime_ms)
        message = response
    raise SaslError(f"the login does not end after {MESSAGES_MAX} messages")


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: ApiMessage,
    kind: type[MessageT],
) -> MessageT:
    """Send one request of a login; return its answer. Raises KafkaFrameError, OSError, EOFError."""
    key, body = ApiKey(request.API_KEY), bytes(encode_request(request, VERSION))
    length = _HEAD.size - _SIZE.size + len(CLIENT_ID) + len(body)
    writer.write(_HEAD.pack(length, key, VERSION, 0, len(CLIENT_ID)) + CLIENT_ID + body)
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    if not _CORRELATION.size < size <= FRAME_BYTES_MAX:
        raise KafkaFrameError(f"an answer to a login has a length of {size} B")
    frame = memoryview(await reader.readexactly(size))
    response = decode_response(key, VERSION, frame[_CORRELATION.size :])
    assert isinstance(response, kind), "the codec selects by API"
    return response
