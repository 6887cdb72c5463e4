"""Record of the logins that are a cluster's servers and clients, and the rights of a node by it.

Leaves the rights of each role to `node_rights.py`, and following the record to
`followed_rights.py`.

Format: the value of `/node-rights` is a msgpack array [1, array of the servers' identities, array
of the clients']; both are texts of `quire.identity.zookeeper_access`. Without servers, nodes are
open to every process.

Invariants: an identity has one role; a record with clients has servers.

Source: docs/security.md, "ZooKeeper".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import NODE_RIGHTS
from metadata.security.access_errors import InvalidIdentityError
from metadata.security.node_rights import ALL, Right, client_rights

IDENTITIES_MAX: Final = 16
"""Maximum number of identities of one role: each node has one entry for each."""
IDENTITY_CHARACTERS_MAX: Final = 512
EVERYONE: Final = "world:anyone"

_FORMAT_VERSION: Final = 1
_IDENTITY: Final = re.compile(r"digest:[^:\s]+:[A-Za-z0-9+/]{27}=|x509:\S.*")


@dataclass(frozen=True, slots=True, order=True)
class AccessEntry:
    """Rights of one identity on a node."""

    identity: str
    rights: Right


AccessList = tuple[AccessEntry, ...]
"""All rights on one node, in the order of the identities."""

OPEN_LIST: Final[AccessList] = (AccessEntry(EVERYONE, ALL),)


@dataclass(frozen=True, slots=True)
class NodeRights:
    """Logins of a cluster's servers and clients; see `checked_rights`."""

    servers: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether every process has all rights."""
        return not self.servers

    def access_to(self, path: str) -> AccessList:
        """Return the rights on a node."""
        if self.is_open:
            return OPEN_LIST
        entries = [AccessEntry(each, ALL) for each in self.servers]
        rights = client_rights(path)
        if rights:
            entries += [AccessEntry(each, rights) for each in self.clients]
        return tuple(sorted(entries))


OPEN: Final = NodeRights()


def checked_rights(servers: Sequence[str], clients: Sequence[str]) -> NodeRights:
    """Return a record of these identities. Raises InvalidIdentityError."""
    for identities in (servers, clients):
        if len(identities) > IDENTITIES_MAX:
            raise InvalidIdentityError(
                identities[IDENTITIES_MAX], f"a role has at most {IDENTITIES_MAX} identities"
            )
    for each in (*servers, *clients):
        if len(each) > IDENTITY_CHARACTERS_MAX or _IDENTITY.fullmatch(each) is None:
            raise InvalidIdentityError(each, "it is not the identity of a login")
    for each in clients:
        if each in servers:
            raise InvalidIdentityError(each, "it is both a server and a client")
        if not servers:
            raise InvalidIdentityError(each, "there are clients, but no servers")
    return NodeRights(tuple(dict.fromkeys(servers)), tuple(dict.fromkeys(clients)))


def pack_rights(rights: NodeRights) -> bytes:
    """Return the record's value."""
    servers: list[Packed] = list(rights.servers)
    clients: list[Packed] = list(rights.clients)
    return pack_checked(NODE_RIGHTS, [_FORMAT_VERSION, servers, clients], unpack_rights)


def unpack_rights(value: bytes) -> NodeRights:
    """Return the record of a value. Raises MetadataFormatError."""
    fields = unpack_versioned(NODE_RIGHTS, value, _FORMAT_VERSION, 3)
    try:
        servers, clients = ([text_of(each) for each in array_of(part)] for part in fields[1:])
        return checked_rights(servers, clients)
    except (FieldError, InvalidIdentityError) as error:
        raise MetadataFormatError(NODE_RIGHTS, str(error)) from error
