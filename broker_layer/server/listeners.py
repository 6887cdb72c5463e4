"""Listeners of a broker: their names, bound addresses and advertised addresses.

Leaves listening to `server`.

Format: `NAME://host:port`, separated by commas. Advertised listeners have the same names. A
listener without an advertised address is advertised with its bound address and actual port.
"""

import re
from dataclasses import dataclass
from typing import Final

from quire.addresses import PORT_MAX, join_address, without_brackets

LISTENERS_MAX: Final = 16

_LISTENER: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9_-]{0,62})://(\[[0-9A-Fa-f:.]+\]|[^:/\s]*):(\d{1,5})"
)


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Name and one address of a listener."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """The address as `host:port`."""
        return join_address(self.host, self.port)


def parse_listeners(text: str) -> tuple[ListenerAddress, ...]:
    """Parse a list of listeners; empty text gives an empty tuple. Raises ValueError."""
    listeners: dict[str, ListenerAddress] = {}
    for part in text.split(",") if text.strip() else ():
        match = _LISTENER.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not of the form NAME://host:port")
        name, host, port = match[1], without_brackets(match[2]), int(match[3])
        if port > PORT_MAX:
            raise ValueError(f"{port} is not a valid port: use 0 to {PORT_MAX}")
        if name in listeners:
            raise ValueError(f"listener {name} is given twice: use a different name for each")
        listeners[name] = ListenerAddress(name, host or "127.0.0.1", port)
    if len(listeners) > LISTENERS_MAX:
        raise ValueError(f"there are {len(listeners)} listeners: use at most {LISTENERS_MAX}")
    return tuple(listeners.values())


def advertise(
    taken: tuple[ListenerAddress, ...], wanted: tuple[ListenerAddress, ...]
) -> tuple[ListenerAddress, ...]:
    """Return the addresses for clients: those of `wanted`, with the bound port in place of 0."""
    by_name = {address.name: address for address in wanted}
    advertised = []
    for address in taken:
        want = by_name.get(address.name, address)
        advertised.append(ListenerAddress(address.name, want.host, want.port or address.port))
    return tuple(advertised)
