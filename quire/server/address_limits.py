"""Limits of the connections from one address.

Leaves closing refused connections to `connection_context`, and quotas of the rate of new
connections to `broker_layer.server.quotas`.

Invariants: an address has at most `connections_max` admitted connections, if that is not 0; only
addresses with open connections are kept.
"""

import sys
from typing import TYPE_CHECKING, Final

from quire.identity.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable

MAPPED: Final = "::ffff:"
"""Beginning of an IPv4 address in the form of IPv6, as sockets for both report it."""


class AddressLimits:
    """The connections of each address, for one server."""

    def __init__(self, connections_max: int) -> None:
        """With `connections_max` 0 there is no limit of their number."""
        self._connections_max = connections_max
        self._shares = Shares(sys.maxsize, connections_max)
        self.is_within_rate: Callable[[str, float], bool] | None = None
        """Counts a new connection of an address at a time, unless its address makes too many."""

    def refusal(self, address: str, now_s: float) -> str | None:
        """Return why a new connection is refused; None if it is admitted, and so counted."""
        if self._connections_max and not self._shares.take(address):
            return "the address has too many connections"
        if self.is_within_rate is not None and not self.is_within_rate(address, now_s):
            self.release(address)
            return "the address makes connections too fast"
        return None

    def release(self, address: str) -> None:
        """Note the end of an admitted connection."""
        if self._connections_max:
            self._shares.give_back(address)


def plain_address(host: str) -> str:
    """Return an address without the form of IPv6 around IPv4, and without its zone."""
    if host.startswith(MAPPED) and "." in host:
        return host[len(MAPPED) :]
    return host.partition("%")[0]
