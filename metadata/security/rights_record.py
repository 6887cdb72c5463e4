"""Record of the logins that are a cluster's servers and clients, and the rights of a node by it.

Leaves the rights of each role to `metadata.paths`, and following the record to
`followed_rights.py`.

Identities are texts of `quire.identity.zookeeper_access`. Without servers, nodes are open to every
process.

Invariants: an identity has one role; a record with clients has servers.

Source: docs/security.md, "ZooKeeper".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.paths import ALL, NODE_RIGHTS, Right, client_rights
from metadata.records import codec_of
from metadata.security.access_errors import InvalidIdentityError
from metadata.store.records import RecordNode

IDENTITIES_MAX: Final = 16
"""Maximum number of identities of one role: each node has one entry for each."""
IDENTITY_CHARACTERS_MAX: Final = 512
EVERYONE: Final = "world:anyone"

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
        entries = [AccessEntry(server, ALL) for server in self.servers]
        rights = client_rights(path)
        if rights:
            entries += [AccessEntry(client, rights) for client in self.clients]
        return tuple(sorted(entries))


OPEN: Final = NodeRights()


def checked_rights(servers: Sequence[str], clients: Sequence[str]) -> NodeRights:
    """Return a record of these identities. Raises InvalidIdentityError."""
    for identities in (servers, clients):
        if len(identities) > IDENTITIES_MAX:
            raise InvalidIdentityError(
                identities[IDENTITIES_MAX], f"a role has at most {IDENTITIES_MAX} identities"
            )
    for server in (*servers, *clients):
        if len(server) > IDENTITY_CHARACTERS_MAX or _IDENTITY.fullmatch(server) is None:
            raise InvalidIdentityError(server, "it is not the identity of a login")
    for client in clients:
        if client in servers:
            raise InvalidIdentityError(client, "it is both a server and a client")
        if not servers:
            raise InvalidIdentityError(client, "there are clients, but no servers")
    return NodeRights(tuple(dict.fromkeys(servers)), tuple(dict.fromkeys(clients)))


RIGHTS_CODEC: Final = codec_of(
    NodeRights, lambda rights: checked_rights(rights.servers, rights.clients)
)
RIGHTS_NODE: Final = RecordNode(NODE_RIGHTS, RIGHTS_CODEC)
