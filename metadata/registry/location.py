"""Place of a bookie: the rack and the host that its location names.

Leaves the choice among places to the client's placement.

Format: a location is `/region/rack/host`. A host of `default` is unknown: the host is then the
address that the bookie advertises, and all loopback addresses are one host.

Source: protocol rule 3.3.
"""

from dataclasses import dataclass
from typing import Final

from quire.addresses import LOCAL_NAME, is_loopback

UNKNOWN_LOCATION: Final = "/default/default/default"
UNKNOWN_HOST: Final = "default"
"""Last part of a location that names no host."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Rack and machine of a bookie. Bookies on one machine have the same place."""

    rack: str
    """The location without its last part: `/region/rack`."""
    host: str
    """The machine's name or address. Hosts of different racks are different hosts."""


def place_of(location: str, address_host: str) -> Place:
    """Return the place of a bookie from its location and the host that it advertises."""
    rack, _, host = location.rstrip("/").rpartition("/")
    if host == UNKNOWN_HOST:
        host = LOCAL_NAME if is_loopback(address_host) else address_host
    return Place(rack or location, host)


def with_host_name(location: str, host_name: str) -> str:
    """Return a location whose unknown host is replaced by a machine's name.

    A name that is the same on every machine (`localhost`), or that cannot be a part of a location,
    changes nothing.
    """
    rack, _, host = location.rpartition("/")
    is_of_use = host_name and "/" not in host_name and host_name.partition(".")[0] != LOCAL_NAME
    if host != UNKNOWN_HOST or not is_of_use:
        return location
    return f"{rack}/{host_name}"
