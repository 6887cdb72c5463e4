"""Registration of a live bookie, and its bytes.

Leaves storing it in the metadata store to `registrar.py`, and reading all registrations to
`directory.py`.

Format: a msgpack array

    index  field           msgpack type
    0      format version  int, 1
    1      bookie id       str
    2      host            str
    3      port            int
    4      tls             bool
    5      admin url       str, "" without an admin server
    6      location        str, "/region/rack/host" (`location.py` says what "default" means)
    7      capacity        int, bytes
    8      free            int, bytes
    9      weight          float
    10     writable        bool
    11     build           str
    12     wire versions   [oldest int, newest int]
    13     disk versions   [oldest int, newest int]
    14     features        [str]

Invariants: for any bytes, decoding returns a registration or raises MetadataFormatError.

Source: metadata design, "Registration"; protocol rule 2.1.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, is_bookie_id
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    bool_of,
    float_of,
    int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.registry.location import UNKNOWN_LOCATION, Place, place_of

FREE_CHANGE_MIN: Final = 0.05
REWRITE_INTERVAL_S: Final = 60.0

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 15
_INT64_MAX: Final = 2**63 - 1
_PORT_MAX: Final = 65_535

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

VersionRange = tuple[int, int]
"""Oldest and newest supported version."""


@dataclass(frozen=True, slots=True)
class BookieRegistration:
    """A live bookie: its address, free space and supported versions.

    A bookie that accepts no new entries is registered with `writable` false; it still serves reads.
    """

    bookie_id: BookieId
    host: str
    port: int
    tls: bool = False
    admin_url: str = ""
    location: str = UNKNOWN_LOCATION
    capacity_bytes: int = 0
    free_bytes: int = 0
    weight: float = 1.0
    writable: bool = True
    build: str = ""
    wire_versions: VersionRange = (1, 1)
    disk_versions: VersionRange = (1, 1)
    features: tuple[str, ...] = ()

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


def encode_registration(registration: BookieRegistration) -> list[Packed]:
    """Return the fields to pack."""
    return [
        _FORMAT_VERSION,
        registration.bookie_id,
        registration.host,
        registration.port,
        registration.tls,
        registration.admin_url,
        registration.location,
        registration.capacity_bytes,
        registration.free_bytes,
        registration.weight,
        registration.writable,
        registration.build,
        list(registration.wire_versions),
        list(registration.disk_versions),
        list(registration.features),
    ]


def pack_registration(registration: BookieRegistration) -> bytes:
    """Return the stored form."""
    what = f"the registration of {registration.bookie_id}"
    unpack = partial(unpack_registration, what=what)
    return pack_checked(what, encode_registration(registration), unpack)


def unpack_registration(value: bytes, what: str = "a registration") -> BookieRegistration:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return _registration_of(fields)
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


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


def _registration_of(fields: list[Packed]) -> BookieRegistration:
    bookie_id = text_of(fields[1])
    if not is_bookie_id(bookie_id):
        raise FieldError(f"{bookie_id!r} is not a bookie id")
    return BookieRegistration(
        bookie_id=BookieId(bookie_id),
        host=text_of(fields[2]),
        port=int_of(fields[3], 0, _PORT_MAX),
        tls=bool_of(fields[4]),
        admin_url=text_of(fields[5]),
        location=text_of(fields[6]),
        capacity_bytes=int_of(fields[7], 0, _INT64_MAX),
        free_bytes=int_of(fields[8], 0, _INT64_MAX),
        weight=float_of(fields[9]),
        writable=bool_of(fields[10]),
        build=text_of(fields[11]),
        wire_versions=_range_of(fields[12]),
        disk_versions=_range_of(fields[13]),
        features=tuple(text_of(field) for field in array_of(fields[14])),
    )


def _range_of(field: Packed) -> VersionRange:
    bounds = [int_of(bound, 0, _INT64_MAX) for bound in array_of(field)]
    if len(bounds) != len(("oldest", "newest")) or bounds[0] > bounds[1]:
        raise FieldError("a range of versions is expected")
    return bounds[0], bounds[1]
