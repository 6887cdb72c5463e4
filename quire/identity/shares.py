"""Places that clients share: how many there are, and how many of them one client may have. Pure.

Leaves waiting for a place to `fair_queue`, and what a place is to its users.

Invariants: at most `places_max` places are taken, and at most `share_max` of one holder, so that a
client that takes all it can get keeps no other out; only holders with places are kept.
"""

import ipaddress
from collections import Counter
from typing import Final

NETWORK_BITS: Final = 64
"""Length of the prefix of an IPv6 network: a host has all addresses of one."""


class Shares:
    """Places of one kind. A holder is a principal, or the network of a client without one."""

    def __init__(self, places_max: int, share_max: int) -> None:
        self._places_max = places_max
        self._share_max = share_max
        self._taken = 0
        self._of_holder = Counter[str]()

    def __len__(self) -> int:
        """Return the number of places that are taken."""
        return self._taken

    def has_free(self, count: int = 1) -> bool:
        """Return whether so many places are free."""
        return self._taken + count <= self._places_max

    def has_share(self, holder: str, count: int = 1) -> bool:
        """Return whether so many places are free, and within the share of a holder."""
        own = self._of_holder.get(holder, 0)
        return self.has_free(count) and own + count <= self._share_max

    def take(self, holder: str, count: int = 1) -> bool:
        """Take places; return False, and take none, if too few are free or in the share."""
        if not self.has_share(holder, count):
            return False
        self._taken += count
        self._of_holder[holder] += count
        return True

    def give_back(self, holder: str, count: int = 1) -> None:
        """Free places that were taken for a holder."""
        assert self._of_holder.get(holder, 0) >= count, "they were taken"
        self._taken -= count
        self._of_holder[holder] -= count
        if not self._of_holder[holder]:
            del self._of_holder[holder]


def network_of(address: str) -> str:
    """Return what an address counts as: itself, or its network if it is one of IPv6, because a
    client can use as many of these as it likes.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), NETWORK_BITS), strict=False))
