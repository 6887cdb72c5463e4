"""Messages of logins, and their place in the registry of messages.

Leaves encoding and the registry to `kafka.messages`.

Source: KIP-43, KIP-152, KIP-368.
"""

from typing import Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from broker_layer.kafka.versions import ApiKey

__all__ = [
    "LOGIN_MESSAGES",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
]

LOGIN_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    ApiKey.SASL_HANDSHAKE: (SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.SASL_AUTHENTICATE: (SaslAuthenticateRequest, SaslAuthenticateResponse),
}
