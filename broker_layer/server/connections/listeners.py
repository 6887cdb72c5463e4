"""Reads what listeners a broker has: names, where each is bound, and what clients are told.

Leaves listening to `server`.

Format: `NAME://host:port`, several with commas between. Advertised ones have the same names; a name
that is not advertised is advertised as it is bound, with the port that was really taken.
"""

import re
from dataclasses import dataclass
from typing import Final

LISTENERS_MAX: Final = 16
PORT_MAX: Final = 65_535

_LISTENER: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9_-]{0,62})://(\[[0-9A-Fa-f:.]+\]|[^:/\s]*):(\d{1,5})"
)


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """A listener's name and one address of it."""

    name: str
    host: str
    port: int


def parse_listeners(text: str) -> tuple[ListenerAddress, ...]:
    """Read a list of listeners; empty text gives none. Raises ValueError, saying what is wrong."""
    found: dict[str, ListenerAddress] = {}
    for part in text.split(",") if text.strip() else ():
        match = _LISTENER.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not of the form NAME://host:port")
        name, host, port = match[1], match[2].strip("[]"), int(match[3])
        if port > PORT_MAX:
            raise ValueError(f"{port} is not a port")
        if name in found:
            raise ValueError(f"listener {name} is there twice")
        found[name] = ListenerAddress(name, host or "127.0.0.1", port)
    if len(found) > LISTENERS_MAX:
        raise ValueError(f"more than {LISTENERS_MAX} listeners")
    return tuple(found.values())


def advertise(
    taken: tuple[ListenerAddress, ...], wanted: tuple[ListenerAddress, ...]
) -> tuple[ListenerAddress, ...]:
    """Return what clients are told: what was wanted, a port of 0 meaning the one that was taken."""
    by_name = {each.name: each for each in wanted}
    told = []
    for each in taken:
        want = by_name.get(each.name, each)
        told.append(ListenerAddress(each.name, want.host, want.port or each.port))
    return tuple(told)
