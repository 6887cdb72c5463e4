"""Rights of clients and servers on every node. Pure.

Leaves which logins are servers and clients to `rights_record.py`, and setting the rights to the
store and `securing.py`.

Format: a row of the table holds for its node and for all nodes below it that have no row of their
own. The row of the root holds for the root alone.

Invariants: servers have every right on every node. A client has no right on a path without a row,
and never ADMIN, which would change the rights themselves. To delete a node is a right on its
parent.

Source: ZooKeeper 3.9, programmer's guide, "ACL Permissions"; docs/security.md, "ZooKeeper".
"""

from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import Final

from metadata.paths import (
    ACLS,
    AUDIT_TRAIL,
    AUDITOR,
    BOOKIES,
    BROKERS,
    CHAINS,
    CHOSEN_IDS,
    CLIENTS,
    CONTROLLER,
    COOKIES,
    DELETED,
    IN_SYNC,
    INSTANCE,
    LEDGER_GRANTS,
    LEDGER_IDS,
    LEDGERS,
    LIFECYCLES,
    NODE_RIGHTS,
    PARTITIONS,
    POSITIONS,
    PRODUCER_IDS,
    QUOTAS,
    REPAIR_CLAIMS,
    REPAIR_JOBS,
    REPAIR_KEY,
    REPAIR_SETTINGS,
    REPAIR_STATUS,
    REPAIR_WORKERS,
    REPLICA_IDS,
    REPLICAS,
    RESTORE,
    SCRUBS,
    TOPIC_NAMES,
    TOPICS,
    USERS,
)


class Right(IntFlag):
    """Rights on one node, with ZooKeeper's numbers."""

    NONE = 0
    READ = 1
    """Read the value and the names below."""
    WRITE = 2
    """Change the value."""
    CREATE = 4
    """Create nodes below."""
    DELETE = 8
    """Delete nodes below."""
    ADMIN = 16
    """Change the rights."""


CHANGE: Final = Right.READ | Right.WRITE | Right.CREATE | Right.DELETE
ALL: Final = CHANGE | Right.ADMIN
ROOT: Final = "/"
IDS: Final = LEDGER_IDS.rpartition("/")[0]
REPAIR: Final = REPAIR_KEY.rpartition("/")[0]

CLIENT_RIGHTS: Final[Mapping[str, Right]] = MappingProxyType(
    {
        ROOT: Right.READ,
        # What a writer of ledgers and chains changes.
        LEDGERS: CHANGE,
        CHAINS: CHANGE,
        LEDGER_IDS: Right.READ | Right.WRITE,
        CHOSEN_IDS: Right.READ | Right.CREATE | Right.DELETE,
        DELETED: Right.READ | Right.CREATE,
        CLIENTS: CHANGE,
        # What it reads.
        IDS: Right.READ,
        INSTANCE: Right.READ,
        BOOKIES: Right.READ,
        COOKIES: Right.READ,
        POSITIONS: Right.READ,
        BROKERS: Right.READ,
        CONTROLLER: Right.READ,
        TOPICS: Right.READ,
        TOPIC_NAMES: Right.READ,
        PARTITIONS: Right.READ,
        REPLICAS: Right.READ,
        IN_SYNC: Right.READ,
        PRODUCER_IDS: Right.READ,
        REPLICA_IDS: Right.READ,
        REPAIR: Right.READ,
        LIFECYCLES: Right.READ,
        REPAIR_SETTINGS: Right.READ,
        REPAIR_JOBS: Right.READ,
        REPAIR_CLAIMS: Right.READ,
        REPAIR_WORKERS: Right.READ,
        AUDITOR: Right.READ,
        REPAIR_STATUS: Right.READ,
        SCRUBS: Right.READ,
        RESTORE: Right.READ,
        NODE_RIGHTS: Right.READ,
        ACLS: Right.READ,
        # Secrets, and what clients of ledgers need not know.
        REPAIR_KEY: Right.NONE,
        USERS: Right.NONE,
        QUOTAS: Right.NONE,
        LEDGER_GRANTS: Right.NONE,
        AUDIT_TRAIL: Right.NONE,
    }
)


def client_rights(path: str) -> Right:
    """Return what a client may do to a node."""
    if path == ROOT:
        return CLIENT_RIGHTS[ROOT]
    while path:
        rights = CLIENT_RIGHTS.get(path)
        if rights is not None:
            return rights
        path = path.rpartition("/")[0]
    return Right.NONE


def made_for_clients() -> tuple[str, ...]:
    """Return the nodes in which clients create others, but cannot create themselves."""
    return tuple(path for path, rights in CLIENT_RIGHTS.items() if Right.CREATE in rights)
