"""Request handlers, which a family of APIs gives to the dispatcher by API key.

Leaves calling them to `server.dispatch`, and the type of faster handlers to `server.exchange`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker_layer.kafka.messages import ApiMessage
from broker_layer.security.rights import Rights
from quire.identity.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Origin of one request, and the API version of the request and its answer."""

    api_version: int
    client_id: str
    """Empty where the client gave none."""
    client_host: str
    listener: str
    """Name of the listener that the client connected to: Metadata returns addresses of this one."""
    connection_id: int
    """Unique within this process. Fetch sessions and group members are not bound to it."""
    principal: Principal = ANONYMOUS
    """Who the client is."""
    is_private: bool = True
    """Whether no other machine can read the connection: it has TLS, or is from a loopback address.
    """
    rights: Rights | None = None
    """What the client may do; None without an authorizer."""


Handler = Callable[[ApiMessage, RequestContext], Awaitable[ApiMessage | bytes]]
"""Takes a decoded request; returns the response, or its body encoded in the request's version. A
refusal is part of the response and is not raised.
"""
