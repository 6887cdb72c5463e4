"""Names who asks: what a handler may know of a request beside its message.

Leaves the message to `kafka.messages` and the way back to `connection`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Where one request came from, and in which version it and its answer are written."""

    api_key: int
    api_version: int
    client_id: str
    """Empty where the client gave none."""
    client_host: str
    listener: str
    """The name of the listener that the client connected to: Metadata answers for that one."""
    connection_id: int
    """Unique within this process; a fetch session or a group member is not bound to it."""
