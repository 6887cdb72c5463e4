"""Registration of a live bookie, and its bytes.

Leaves storing it in the metadata store to `registrar.py`, and reading all registrations to
`directory.py`.

Source: metadata design, "Registration"; protocol rule 2.1.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Final

from metadata.ids import BookieId
from metadata.msgpack_fields import FieldError, Packed, array_of
from metadata.records import Bytes, Form, codec_of, whole
from metadata.registry.location import UNKNOWN_LOCATION, Place, place_of
from quire.addresses import PORT_MAX, join_address

FREE_CHANGE_MIN: Final = 0.05
REWRITE_INTERVAL_S: Final = 60.0

DRAINING_FEATURE: Final = "condition:draining"
"""Feature of a bookie that is taken out of service: its entries are moved to other bookies."""
LIMBO_FEATURE: Final = "condition:limbo"
"""Feature of a bookie that may have lost stored data (rule 2.4)."""
TLS_FEATURE: Final = "tls"
"""Feature of a bookie that takes connections with TLS and without it."""
OWNERS_FEATURE: Final = "owners"
"""Feature of a bookie that says to clients who they are, so that new ledgers have owners (rule
12.2).
"""


def _read_range(field: Packed) -> tuple[int, int]:
    bounds = [_BOUND.unpack(bound) for bound in array_of(field)]
    if len(bounds) != len(("oldest", "newest")) or bounds[0] > bounds[1]:
        raise FieldError("a range of versions is expected")
    return bounds[0], bounds[1]


_BOUND: Final = whole()
VersionRange = Annotated[
    tuple[int, int], Form[tuple[int, int]]("[oldest int, newest int]", list, _read_range)
]
"""Oldest and newest supported version."""


@dataclass(frozen=True, slots=True)
class BookieRegistration:
    """A live bookie: its address, free space and supported versions.

    A bookie that accepts no new entries is registered with `writable` false; it still serves reads.
    """

    bookie_id: BookieId
    host: str
    port: Annotated[int, whole(0, PORT_MAX)]
    tls: bool = False
    admin_url: str = ""
    location: str = UNKNOWN_LOCATION
    capacity_bytes: Bytes = 0
    free_bytes: Bytes = 0
    weight: float = 1.0
    writable: bool = True
    build: str = ""
    wire_versions: VersionRange = (1, 1)
    disk_versions: VersionRange = (1, 1)
    features: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Address for clients, as `host:port`."""
        return join_address(self.host, self.port)

    @property
    def drains(self) -> bool:
        """Whether an operator takes the bookie out of service."""
        return DRAINING_FEATURE in self.features

    @property
    def offers_tls(self) -> bool:
        """Whether the bookie takes connections with TLS, and others too unless `tls` is set."""
        return self.tls or TLS_FEATURE in self.features

    @property
    def names_owners(self) -> bool:
        """Whether the bookie says to clients who they are."""
        return OWNERS_FEATURE in self.features

    @property
    def is_in_limbo(self) -> bool:
        """Whether the bookie may have lost stored data."""
        return LIMBO_FEATURE in self.features

    @property
    def place(self) -> Place:
        """Rack and host of the bookie."""
        return place_of(self.location, self.host)


REGISTRATION_CODEC: Final = codec_of(BookieRegistration)


def rewrite_due_s(
    stored: BookieRegistration, wanted: BookieRegistration, age_s: float
) -> float | None:
    """Return the delay in seconds after which a registration of age `age_s` is to be rewritten, or
    None if the change is too small.

    A change of free space alone waits until the registration is REWRITE_INTERVAL_S old, and counts
    only from FREE_CHANGE_MIN of the capacity on. Any other change is due at once.
    """
    if replace(stored, free_bytes=wanted.free_bytes) != wanted:
        return 0.0
    changed = abs(wanted.free_bytes - stored.free_bytes)
    if changed == 0 or changed < FREE_CHANGE_MIN * wanted.capacity_bytes:
        return None
    return max(0.0, REWRITE_INTERVAL_S - age_s)
