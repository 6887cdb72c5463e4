"""Servers of an ensemble of ZooKeeper, as the options name them.

Format: `N=host:port:port`, several separated by spaces: the number of a server, its host, the port
for the other servers and the port for elections.

Source: ZooKeeper 3.9, administrator's guide, "Clustered (Multi-Server) Setup".
"""

import itertools
import re
from dataclasses import dataclass
from typing import Final

NUMBER_MAX: Final = 255
PORT_MAX: Final = 65_535
EXAMPLE: Final = "1=zk1.example:2888:3888"

_MEMBER: Final = re.compile(r"(\d{1,3})=(\[[0-9A-Fa-f:.]+\]|[^:\s=\[\]]+):(\d{1,5}):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Member:
    """One server of an ensemble."""

    number: int
    host: str
    """Name or address; an IPv6 address is without brackets."""
    peer_port: int
    election_port: int

    @property
    def setting(self) -> tuple[str, str]:
        """Name and value of ZooKeeper's setting for this server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"server.{self.number}", f"{host}:{self.peer_port}:{self.election_port}"


def parse_members(text: str) -> tuple[Member, ...]:
    """Return the servers, in the order of their numbers. Raises ValueError."""
    members = sorted(map(_member, text.split()), key=lambda each: each.number)
    for one, next_one in itertools.pairwise(members):
        if one.number == next_one.number:
            raise ValueError(f"two servers have the number {one.number}")
    return tuple(members)


def _member(text: str) -> Member:
    match = _MEMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not N=host:port:port, such as {EXAMPLE}")
    number, peer_port, election_port = (int(match[each]) for each in (1, 3, 4))
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"{text!r} has the number {number}: use 1 to {NUMBER_MAX}")
    if not (0 < peer_port <= PORT_MAX and 0 < election_port <= PORT_MAX):
        raise ValueError(f"{text!r} has a port that does not exist: use 1 to {PORT_MAX}")
    if peer_port == election_port:
        raise ValueError(f"{text!r} has one port twice: use two")
    return Member(number, match[2].strip("[]"), peer_port, election_port)
