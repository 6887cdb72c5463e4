"""Parser of metadata URIs.

Leaves connecting to `zookeeper.py`.

Format: `zk://host:port[,host:port...][/chroot][?client=file]`; the default port is 2181; an IPv6
address is written in brackets. The file has the client's certificates and logins
(`security.client_file`).
"""

import re
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidUriError

SCHEME: Final = "zk://"
PORT_DEFAULT: Final = 2181
HOSTS_MAX: Final = 32
CLIENT_PARAMETER: Final = "client"

_PORT_MAX: Final = 65_535
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
)
_CHROOT = re.compile(r"(?:/[A-Za-z0-9._-]+)*")
_SECRET = re.compile(r"[^/,'\"]*@|(?<=\?)(?!client=).*", re.DOTALL)
"""Place where a user and a password, or a parameter, would be."""


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """Address of a cluster's metadata: the servers of one ZooKeeper, and the node below which all
    of it is stored.
    """

    hosts: tuple[tuple[str, int], ...]
    chroot: str
    client_file: str = ""
    """Path of the client's file; empty if there is none."""

    @property
    def text(self) -> str:
        """The URI, with every port."""
        client = f"?{CLIENT_PARAMETER}={self.client_file}" if self.client_file else ""
        return SCHEME + self.host_text + self.chroot + client

    @property
    def host_text(self) -> str:
        """The servers as `host:port,host:port`."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )


def parse_metadata_uri(uri: str) -> MetadataUri:
    """Parse a URI. Raises InvalidUriError, which says what is wrong."""
    if not uri.startswith(SCHEME):
        raise _refused(uri, f"it does not start with {SCHEME}")
    address, question_mark, parameters = uri.removeprefix(SCHEME).partition("?")
    hosts, _, path = address.partition("/")
    chroot = f"/{path}".rstrip("/")
    if _CHROOT.fullmatch(chroot) is None or {".", ".."} & set(chroot.split("/")):
        raise _refused(uri, f"{chroot!r} is not a path of plain names")
    name, equals, client_file = parameters.partition("=")
    if question_mark and not (name == CLIENT_PARAMETER and equals and client_file):
        raise _refused(uri, f"after ? only {CLIENT_PARAMETER}=FILE is possible")
    texts = hosts.split(",")
    if len(texts) > HOSTS_MAX:
        raise _refused(uri, f"it lists more than {HOSTS_MAX} servers")
    return MetadataUri(tuple(_host_of(uri, text) for text in texts), chroot, client_file)


def _refused(uri: str, why: str) -> InvalidUriError:
    """Return the error for a URI, without a password that it may have: other URIs may have one."""
    return InvalidUriError(_SECRET.sub("...", uri), _SECRET.sub("...", why))


def _host_of(uri: str, text: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if match is None:
        raise _refused(uri, f"{text!r} is not host:port" if text else "it lists no server")
    port = int(match["port"] or PORT_DEFAULT)
    if not 0 < port <= _PORT_MAX:
        raise _refused(uri, f"{port} is not a port")
    return match["v6"] or match["name"], port
