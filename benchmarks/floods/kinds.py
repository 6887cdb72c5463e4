"""Kinds of floods: what they attack, how large they are, and how much memory they may cost.

Leaves what the bad clients do to the modules of each kind, which `flooder` lists.

Invariant: every flood is bounded by its size: by connections, by work for each of them, and by a
rate.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MIB: Final = 1024 * 1024
SLACK_BYTES: Final = 64 * MIB
"""Memory that the good client's own entries, and the allocator, may add."""
BOOKIE_ANSWERS_BYTES: Final = 128 * MIB
"""Answers of a bookie, of all clients, that are not taken."""
BROKER_ANSWERS_BYTES: Final = 256 * MIB
"""The same of a broker."""

ENTRIES: Final = 48
"""Entries of the bad clients' ledger: more than a bookie keeps in memory, so that reads of the
first ones are from the disk.
"""
ENTRY_BYTES: Final = 1_000_000


class FloodKind(StrEnum):
    """What the bad clients do."""

    STUCK = "stuck"
    """Clients of a bookie: silent, slow, with large announcements, or with polls."""
    READS = "reads"
    """Reads of a bookie over TLS whose answers are not read."""
    ATTACHES = "attaches"
    """Ledgers that do not exist, attached and used by a certificate without any role."""
    FETCHES = "fetches"
    """Fetches of a broker over TLS whose answers are not read."""
    SESSIONS = "sessions"
    """Fetch sessions that grow, by a login without an ACL for their topics."""
    REQUESTS = "requests"
    """Thousands of small requests to a broker at once, by a login without an ACL."""
    HANDSHAKES = "handshakes"
    """Connections to a broker from one address that do not begin their TLS handshakes."""
    ADMIN = "admin"
    """Silent connections to a bookie's admin port from one address."""
    WATCHES = "watches"
    """Watches at a gateway, also of clients that have left."""


class Role(StrEnum):
    """Which server is attacked."""

    BOOKIE = "bookie"
    BROKER = "broker"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a flood."""

    connections: int
    each: int = 1
    """Requests of a connection that are not answered, or watches, or partitions of a request."""
    per_s: int = 1
    """Requests, watches or partitions in a second, where `each` does not bound them."""


@dataclass(frozen=True, slots=True)
class FloodSpec:
    """One kind: its target, its sizes and its bound."""

    role: Role
    usual: Size
    smoke: Size
    growth_bytes_max: int
    """Target of the attacked process's memory, above what it used before."""
    is_started_again: bool = False
    """Whether the server is started again after the flood: work that it left would make the next
    quiet phase slow.
    """


SPECS: Final = {
    FloodKind.STUCK: FloodSpec(
        Role.BOOKIE, Size(160, 8), Size(40, 4), BOOKIE_ANSWERS_BYTES + SLACK_BYTES
    ),
    FloodKind.READS: FloodSpec(Role.BOOKIE, Size(48), Size(48), BOOKIE_ANSWERS_BYTES + SLACK_BYTES),
    FloodKind.ATTACHES: FloodSpec(
        Role.BOOKIE, Size(1, 80_000, 4_000), Size(1, 80_000, 400), 2 * SLACK_BYTES
    ),
    FloodKind.FETCHES: FloodSpec(Role.BROKER, Size(8), Size(8), BROKER_ANSWERS_BYTES + SLACK_BYTES),
    FloodKind.SESSIONS: FloodSpec(
        Role.BROKER, Size(1, 9_990, 480_000), Size(1, 9_990, 100_000), 4 * SLACK_BYTES
    ),
    FloodKind.REQUESTS: FloodSpec(
        Role.BROKER, Size(1, 9_000, 36_000), Size(1, 2_000, 8_000), SLACK_BYTES
    ),
    FloodKind.HANDSHAKES: FloodSpec(Role.BROKER, Size(256), Size(96), SLACK_BYTES),
    FloodKind.ADMIN: FloodSpec(Role.BOOKIE, Size(256), Size(48), SLACK_BYTES),
    FloodKind.WATCHES: FloodSpec(
        Role.GATEWAY,
        Size(2, 19_900, 20_000),
        Size(2, 200, 2_000),
        2 * SLACK_BYTES,
        is_started_again=True,
    ),
}
