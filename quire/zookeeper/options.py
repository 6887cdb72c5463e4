"""Options of one ZooKeeper server, each with its default, its bounds and its meaning.

Leaves opening the file and the names of flags to `quire.cli`, and reading values to
`quire.server.option_reading`.

Format: the `[zookeeper]` table of a TOML file; `QUIRE_ZOOKEEPER_<OPTION>` overrides it; flags
override both.

Invariants: every returned value has its option's type and is within its bounds. The server listens
on other than loopback addresses only if its options say so: what it sends is not encrypted.

Format of `servers`: `N=host:port:port`, several separated by spaces: the number of a server, its
host, the port for the other servers and the port for elections.

Source: ZooKeeper 3.9, administrator's guide, "Clustered (Multi-Server) Setup".
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quire.server.errors import OptionError
from quire.server.option_reading import (
    OptionTable,
    Value,
    check_log_level,
    describe_options,
    option,
    read_options,
)
from quire.server.security_options import is_loopback
from quire.zookeeper import PORT_DEFAULT

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


TABLE: Final = "zookeeper"
VARIABLE_PREFIX: Final = "QUIRE_ZOOKEEPER_"


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Options of one ZooKeeper server. Build it with `load_options`."""

    data_dir: str = option("", "the directory of all data; of this server alone")
    host: str = option("127.0.0.1", "the address to listen on for clients")
    port: int = option(PORT_DEFAULT, "the port to listen on", low=1, high=PORT_MAX)
    id: int = option(
        0, "the number of this server in `servers`; 0: a single server", low=0, high=NUMBER_MAX
    )
    servers: str = option(
        "",
        "all servers of the ensemble, this one included: N=host:2888:3888, separated by spaces;"
        " give all of them the same",
    )
    peers_on_all_addresses: bool = option(
        False,  # noqa: FBT003
        "listen for the other servers on all addresses of this machine, not only on the one in"
        " `servers`: for containers whose name may lead elsewhere",
    )
    allow_plaintext: bool = option(
        False,  # noqa: FBT003
        "listen on other than loopback addresses; nothing is encrypted there",
    )
    tick_ms: int = option(
        2_000,
        "ZooKeeper's unit of time in ms: the shortest session takes two",
        low=100,
        high=60_000,
    )
    start_ticks: int = option(
        30, "how long a server may take to get the leader's data, in ticks", low=2, high=1_000
    )
    sync_ticks: int = option(
        5, "how long a server may be without news of the leader, in ticks", low=2, high=100
    )
    session_timeout_max_ms: int = option(
        300_000, "the longest session that a client may have, in ms", low=1_000, high=3_600_000
    )
    connections_per_address_max: int = option(
        0,
        "maximum number of client connections from one address; 0: no limit",
        low=0,
        high=100_000,
    )
    snapshots_kept: int = option(
        3, "number of snapshots, with their logs, that are kept", low=3, high=1_000
    )
    purge_interval_h: int = option(
        1, "how often older snapshots and logs are removed, in hours; 0: never", low=0, high=8_760
    )
    heap_mb: int = option(512, "memory for Java's objects, in MiB", low=64, high=65_536)
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")

    @property
    def members(self) -> tuple[Member, ...]:
        """Servers of the ensemble; empty for a single server."""
        return parse_members(self.servers)


OPTIONS: Final = describe_options(ZooKeeperOptions())
OPTION_TABLE: Final = OptionTable(TABLE, VARIABLE_PREFIX, OPTIONS)


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> ZooKeeperOptions:
    """Merge the file's text, environment variables and flags; later sources override earlier ones.
    Raises OptionError.
    """
    values = read_options(OPTION_TABLE, file_text, variables, flags)
    options = ZooKeeperOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    check_log_level(options.log_level)
    if not options.data_dir:
        raise OptionError(
            "data_dir is not set: name a directory, such as --data-dir /srv/zookeeper"
        )
    _check_members(options)
    _check_listening(options)
    return options


def _check_members(options: ZooKeeperOptions) -> None:
    try:
        numbers = [each.number for each in options.members]
    except ValueError as error:
        raise OptionError(f"servers: {error}") from error
    if not numbers and not options.id:
        return
    if not numbers:
        raise OptionError(
            f"id is {options.id} and servers is not set: name all servers of the ensemble,"
            " or leave id out for a single server"
        )
    if options.id not in numbers:
        raise OptionError(
            f"id is {options.id}, and servers has {', '.join(map(str, numbers))}: set id to the"
            " number of this server"
        )
    if len(numbers) == 2:  # noqa: PLR2004
        raise OptionError(
            "servers has two servers, and both would be needed always: use one, three or five"
        )


def _check_listening(options: ZooKeeperOptions) -> None:
    hosts = {"host": options.host}
    for each in options.members:
        if each.number == options.id:
            hosts["servers"] = "all addresses" if options.peers_on_all_addresses else each.host
    for name, host in hosts.items():
        if not is_loopback(host) and not options.allow_plaintext:
            raise OptionError(
                f"{name} is {host}, where other machines can connect without encryption: set"
                " allow_plaintext to true if the network is closed"
            )
