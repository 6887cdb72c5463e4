"""Options of one ZooKeeper server, and the members of an ensemble.

Leaves how options are declared and read to `quire.options`.

Invariant: the server listens on other than loopback addresses only if its options say so: what it
sends is not encrypted.

Format of `servers`: `N=host:port:port`, several separated by spaces: the number of a server, its
host, the port for the other servers and the port for elections.

Source: ZooKeeper 3.9, administrator's guide, "Clustered (Multi-Server) Setup".
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from quire.addresses import PORT_MAX, is_loopback, join_address, without_brackets
from quire.options import OptionTable, option, switch
from quire.server.overriding import override
from quire.server.server_options import (
    Listener,
    ServerOptions,
    connections_per_address_option,
    host_option,
)
from quire.zookeeper import PORT_DEFAULT

NUMBER_MAX: Final = 255
ALL_ADDRESSES: Final = "0.0.0.0"
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
        peer = join_address(self.host, self.peer_port)
        return f"server.{self.number}", f"{peer}:{self.election_port}"


def parse_members(text: str) -> tuple[Member, ...]:
    """Return the servers, in the order of their numbers. Raises ValueError."""
    members = sorted(map(_member, text.split()), key=lambda member: member.number)
    for one, next_one in itertools.pairwise(members):
        if one.number == next_one.number:
            raise ValueError(f"two servers have the number {one.number}")
    return tuple(members)


def _member(text: str) -> Member:
    match = _MEMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not N=host:port:port, such as {EXAMPLE}")
    number, peer_port, election_port = (int(match[group]) for group in (1, 3, 4))
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"{text!r} has the number {number}: use 1 to {NUMBER_MAX}")
    if not (0 < peer_port <= PORT_MAX and 0 < election_port <= PORT_MAX):
        raise ValueError(f"{text!r} has a port that does not exist: use 1 to {PORT_MAX}")
    if peer_port == election_port:
        raise ValueError(f"{text!r} has one port twice: use two")
    return Member(number, without_brackets(match[2]), peer_port, election_port)


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions(ServerOptions):
    """Options of one ZooKeeper server. Read them with ZOOKEEPER."""

    data_dir: str = option("", "the directory of all data; of this server alone", is_required=True)
    host: str = host_option()
    port: int = option(PORT_DEFAULT, "the port to listen on for clients", low=1, high=PORT_MAX)
    id: int = option(
        0, "the number of this server in `servers`; 0: a single server", low=0, high=NUMBER_MAX
    )
    servers: str = option(
        "",
        "all servers of the ensemble, this one included: N=host:2888:3888, separated by spaces;"
        " give all of them the same",
        parse=parse_members,
    )
    peers_on_all_addresses: bool = switch(
        "listen for the other servers on all addresses of this machine, not only on the one in"
        " `servers`: for containers whose name may lead elsewhere"
    )
    allow_plaintext: bool = switch(
        "listen on other than loopback addresses; nothing is encrypted there"
    )
    tick_ms: int = option(
        2_000,
        "ZooKeeper's unit of time: the shortest session takes two",
        low=100,
        high=60_000,
    )
    start_ticks: int = option(
        30, "how long a server may take to get the leader's data", low=2, high=1_000
    )
    sync_ticks: int = option(
        5, "how long a server may be without news of the leader", low=2, high=100
    )
    election_connect_ms: int = option(
        5_000,
        "how long a server may take to connect to another one for an election",
        low=100,
        high=60_000,
    )
    election_pause_max_ms: int = option(
        60_000,
        "the longest time between two messages of a server that looks for a leader",
        low=1_000,
        high=60_000,
    )
    session_timeout_max_ms: int = option(
        300_000, "the longest session that a client may have", low=1_000, high=3_600_000
    )
    connections_per_address_max: int = connections_per_address_option(100_000)
    snapshots_kept: int = option(
        3, "number of snapshots, with their logs, that are kept", low=3, high=1_000
    )
    purge_interval_h: int = option(
        1, "how often older snapshots and logs are removed; 0: never", low=0, high=8_760
    )
    heap_mb: int = option(512, "memory for Java's objects", low=64, high=65_536)

    @property
    def members(self) -> tuple[Member, ...]:
        """Servers of the ensemble; empty for a single server."""
        return parse_members(self.servers)

    @property
    def own_member(self) -> Member | None:
        """This server as a member of the ensemble; None if `servers` has no such number."""
        return next((member for member in self.members if member.number == self.id), None)

    @override
    def addresses(self) -> Iterable[Listener]:
        """See `ServerOptions`."""
        yield Listener("port", self.host, self.port)
        own = self.own_member
        if own is not None:
            host = ALL_ADDRESSES if self.peers_on_all_addresses else own.host
            yield Listener("servers", host, own.peer_port)
            yield Listener("servers", host, own.election_port)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from ServerOptions.contradictions(self)
        numbers = [member.number for member in self.members]
        if not numbers and self.id:
            yield (
                f"id is {self.id} and servers is not set: name all servers of the ensemble, or"
                " leave id out for a single server"
            )
        if numbers and self.own_member is None:
            yield (
                f"id is {self.id}, and servers has {', '.join(map(str, numbers))}: set id to the"
                " number of this server"
            )
        if len(numbers) == 2:  # noqa: PLR2004
            yield "servers has two servers, and both would be needed always: use one, three or five"
        for name, host in self._addresses():
            if not is_loopback(host) and not self.allow_plaintext:
                yield (
                    f"{name} is {host}, where other machines can connect without encryption: set"
                    " allow_plaintext to true if the network is closed"
                )

    def _addresses(self) -> Iterator[tuple[str, str]]:
        yield "host", self.host
        if self.own_member is not None:
            is_open = self.peers_on_all_addresses
            yield "servers", "all addresses" if is_open else self.own_member.host


ZOOKEEPER: Final = OptionTable("zookeeper", ZooKeeperOptions)
