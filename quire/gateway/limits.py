"""Limits and counters of a gateway."""

from dataclasses import dataclass, field

from quire.server.connection_context import ConnectionCounters, ConnectionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits(ConnectionLimits):
    """Limits of one gateway, and of one connection to it."""

    hello_deadline_s: float = 15.0
    """Maximum time from the accept to the end of the hello, which waits for the metadata service.
    """

    sessions_max: int = 10_000
    """Maximum number of sessions, with those whose connection is lost."""

    sessions_per_principal_max: int = 1_000
    """The same for one principal, so that one user does not take all of them; 0: no limit. Clients
    that prove no principal share `sessions_max` alone.
    """

    requests_running_max: int = 32
    """Maximum number of running requests of one connection; at this number, reading pauses."""

    running_bytes_max: int = 2 * 1024 * 1024
    """Maximum bytes of the running requests of one connection; a larger one runs alone."""

    unread_bytes_max: int = 32 * 1024 * 1024
    """Unsent bytes of one connection above which it is cut."""

    watches_max: int = 20_000
    """Maximum number of watches of one connection; one more ends it."""

    ephemerals_max: int = 16
    """Maximum number of ephemeral nodes of one session."""

    session_s_min: float = 1.0
    """Least time of a session, whatever a client asks for."""


@dataclass(slots=True)
class GatewayCounters(ConnectionCounters):
    """Counters of one gateway, since its start; `*_now` are gauges."""

    requests: int = 0
    hellos_refused: int = 0
    sessions_now: int = 0
    sessions_expired: int = 0
    watches_now: int = 0
    reads: int = 0
    writes: int = 0
    requests_refused: dict[str, int] = field(default_factory=lambda: {"read": 0, "write": 0})
    """Requests that the client does not have the right to, by kind."""
