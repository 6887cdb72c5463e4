"""Parser of metadata URIs.

Leaves connecting to `zookeeper/store.py` and `metadata.gateway.opening`.

Format: `zk://host:port[,host:port...][/chroot][?client=file]` names servers of ZooKeeper, and
`gateway://host:port[,host:port...][?client=file]` gateways of one cluster; the default port is 2181
or 2188; an IPv6 address is written in brackets. The file has the client's certificates and logins
(`quire.identity.client_file`).
"""

import itertools
import re
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidUriError
from quire.addresses import PORT_MAX, join_address

SCHEME: Final = "zk://"
GATEWAY_SCHEME: Final = "gateway://"
PORT_DEFAULT: Final = 2181
GATEWAY_PORT_DEFAULT: Final = 2188
HOSTS_MAX: Final = 32
CLIENT_PARAMETER: Final = "client"

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?))(?::(?P<port>[0-9]{1,5}))?"
)
_CHROOT = re.compile(r"(?:/[A-Za-z0-9._-]+)*")
_SECRET = re.compile(r"[^/,'\"]*@|(?<=\?)(?!client=).*", re.DOTALL)
"""Place where a user and a password, or a parameter, would be."""


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """Address of a cluster's metadata: the servers of one ZooKeeper, and the node below which all
    of it is stored; or gateways to it.
    """

    hosts: tuple[tuple[str, int], ...]
    chroot: str
    client_file: str = ""
    """Path of the client's file; empty if there is none."""
    scheme: str = SCHEME

    @property
    def text(self) -> str:
        """The URI, with every port."""
        client = f"?{CLIENT_PARAMETER}={self.client_file}" if self.client_file else ""
        return self.scheme + self.host_text + self.chroot + client

    @property
    def host_text(self) -> str:
        """The servers as `host:port,host:port`."""
        return ",".join(itertools.starmap(join_address, self.hosts))


def parse_zookeeper_uri(uri: str) -> MetadataUri:
    """Parse the URI of ZooKeeper itself. Raises InvalidUriError, also for that of a gateway."""
    where = parse_metadata_uri(uri)
    if where.scheme != SCHEME:
        raise _refused(uri, f"this needs ZooKeeper itself, so it must start with {SCHEME}")
    return where


def parse_metadata_uri(uri: str) -> MetadataUri:
    """Parse a URI. Raises InvalidUriError, which says what is wrong; TypeError for no text."""
    if not isinstance(uri, str):
        kind = type(uri).__name__
        raise TypeError(f"a metadata URI is a str such as zk://host:2181/quire, not {kind}")
    scheme = next((known for known in (SCHEME, GATEWAY_SCHEME) if uri.startswith(known)), "")
    if not scheme:
        raise _refused(uri, f"it does not start with {SCHEME} or {GATEWAY_SCHEME}")
    address, question_mark, parameters = uri.removeprefix(scheme).partition("?")
    hosts, _, path = address.partition("/")
    chroot = f"/{path}".rstrip("/")
    if _CHROOT.fullmatch(chroot) is None or {".", ".."} & set(chroot.split("/")):
        raise _refused(uri, f"{chroot!r} is not a path of plain names")
    if chroot and scheme == GATEWAY_SCHEME:
        raise _refused(uri, "a gateway serves one cluster, and has no path")
    name, equals, client_file = parameters.partition("=")
    if question_mark and not (name == CLIENT_PARAMETER and equals and client_file):
        raise _refused(uri, f"after ? only {CLIENT_PARAMETER}=FILE is possible")
    texts = hosts.split(",")
    if len(texts) > HOSTS_MAX:
        raise _refused(uri, f"it lists more than {HOSTS_MAX} servers")
    port = PORT_DEFAULT if scheme == SCHEME else GATEWAY_PORT_DEFAULT
    servers = tuple(_host_of(uri, text, port) for text in texts)
    return MetadataUri(servers, chroot, client_file, scheme)


def _refused(uri: str, why: str) -> InvalidUriError:
    """Return the error for a URI, without a password that it may have: other URIs may have one."""
    return InvalidUriError(_SECRET.sub("...", uri), _SECRET.sub("...", why))


def _host_of(uri: str, text: str, port_default: int) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if match is None:
        raise _refused(uri, f"{text!r} is not host:port" if text else "it lists no server")
    port = int(match["port"] or port_default)
    if not 0 < port <= PORT_MAX:
        raise _refused(uri, f"{port} is not a port")
    return match["v6"] or match["name"], port
