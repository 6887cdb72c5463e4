"""Register of all kinds of nodes that Quire uses: their paths, and what holds for each of them.

The rights of `quire metadata secure`, what a dump leaves out, and the table of
docs/reference/metadata.md come from its rows. Leaves the values to the modules that own them, as
`metadata.records` describes them.

A ledger id is 19 decimal digits, split into one level of 4 and five of 3. A row holds for its node
and for all nodes below it that have no row of their own; a path without a row is for servers alone,
and is dumped.

Invariants: the first level of ledgers has at most 10,000 names and each other level at most 1,000;
names sort in the order of the ids. Servers have every right on every node. A client never has
ADMIN, which would change the rights themselves. To delete a node is a right on its parent.

Source: metadata design, "Ledgers", "Ids" and "Deletion"; topics design, "The mapping"; protocol
rule 9.1; ZooKeeper 3.9, programmer's guide, "ACL Permissions"; docs/security.md, "ZooKeeper".
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId, ClientId, LedgerId, is_ledger_id
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import TopicId


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


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What holds for one kind of nodes."""

    root: str
    """Path of the node, or of the node above all of this kind."""
    below: str
    """The rest of the path."""
    holds: str
    """The value; a class of this name says how it is stored."""
    written_by: str
    kept_until: str
    clients: Right
    """What a login with the rights of a client may do."""
    is_dumped: bool
    """Whether a dump holds it. Left out is what processes make again (ephemeral nodes, the key of
    repair), what is derived (reports of replicas, records of scrubs, jobs, the summary of repair),
    and what the restored cluster decides again: users, whose credentials help to guess passwords,
    and rights of logins.
    """


_kinds: list[NodeKind] = []


def _kind(
    root: str,
    below: str,
    holds: str,
    written_by: str,
    kept_until: str,
    *,
    clients: Right,
    is_dumped: bool = True,
) -> str:
    """Add a row to the register; return its root."""
    _kinds.append(NodeKind(root, below, holds, written_by, kept_until, clients, is_dumped))
    return root


LEDGERS: Final = _kind(
    "/ledgers",
    "/0000/000/000/000/001/234",
    "`LedgerMetadata` of ledger 1234",
    "compare-and-set by writers, recoveries, repairs",
    "it is deleted",
    clients=CHANGE,
)
LEDGER_IDS: Final = _kind(
    "/ids/ledgers",
    "",
    "the first ledger id that is in no block",
    "compare-and-set by clients, 1,000 ids at a time",
    "for ever",
    clients=Right.READ | Right.WRITE,
)
CHOSEN_IDS: Final = _kind(
    "/ids/chosen",
    "/<ledger id mod 64>/<ledger id>",
    "nothing: a client chose this id, which was in no block",
    "the multi that creates the ledger",
    "for ever",
    clients=Right.READ | Right.CREATE | Right.DELETE,
)
DELETED: Final = _kind(
    "/deleted",
    "/<ledger id mod 64>/<ledger id>",
    "when the ledger was deleted",
    "the multi that deletes the ledger",
    "it is older than `feed_age_h`, and a bookie trims its shard",
    clients=Right.READ | Right.CREATE,
)
BOOKIES: Final = _kind(
    "/bookies",
    "/<bookie id>",
    "`HeldNode` around `BookieRegistration`",
    "the bookie",
    "its session ends",
    clients=Right.READ,
    is_dumped=False,
)
CLIENTS: Final = _kind(
    "/clients",
    "/<client id>",
    "`HeldNode` around the client's build",
    "the client",
    "its session ends",
    clients=CHANGE,
    is_dumped=False,
)
COOKIES: Final = _kind(
    "/cookies",
    "/<bookie id>",
    "`CookieRecord`; the version of the node counts starts",
    "`quire bookie format`, and the bookie at each start",
    "an operator removes it",
    clients=Right.READ,
)
POSITIONS: Final = _kind(
    "/positions",
    "/<bookie id>",
    "`PositionRecord`",
    "compare-and-set by the bookie",
    "an operator removes it",
    clients=Right.READ,
)
INSTANCE: Final = _kind(
    "/instance",
    "",
    "the cluster's identity, 16 random bytes",
    "`quire cluster init`",
    "for ever",
    clients=Right.READ,
)
CHAINS: Final = _kind(
    "/chains",
    "/<name>",
    "`ChainHead`",
    "compare-and-set by clients",
    "the chain is deleted",
    clients=CHANGE,
)
_kind(
    CHAINS,
    "/<name>/creation",
    "the chain's creation token, which never changes",
    "the multi that creates the chain",
    "the chain is deleted",
    clients=CHANGE,
)
_kind(
    CHAINS,
    "/<name>/creation/<creation token, 32 hex digits>",
    "nothing; each change of the chain checks that it exists",
    "the same multi",
    "the chain is deleted",
    clients=CHANGE,
)
_kind(
    CHAINS,
    "/<name>/owner",
    "the principal that created the chain through a gateway",
    "the same multi, of a gateway",
    "the chain is deleted",
    clients=CHANGE,
)
_kind(
    CHAINS,
    "/<name>/links/0000/012/345",
    "`ChainLink` 12345",
    "the multi that publishes it",
    "trimmed, and collected",
    clients=CHANGE,
)
_kind(
    CHAINS,
    "/<name>/applications/<2 digits>/<SHA-256 of the name, 32 digits>",
    "`AppliedBatch`, the application's last one",
    "the same multi",
    "the chain is deleted",
    clients=CHANGE,
)
TOPICS: Final = _kind(
    "/topics",
    "/<name>",
    "`TopicRecord`",
    "compare-and-set by the controller",
    "for ever: a deleted one leaves a tombstone",
    clients=Right.READ,
)
TOPIC_NAMES: Final = _kind(
    "/topic-names",
    "/<name with _ for .>",
    "the one topic that may have such a name",
    "the multi that creates a topic with `.` or `_` in its name",
    "for ever",
    clients=Right.READ,
)
PARTITIONS: Final = _kind(
    "/partitions",
    "/<2 digits>/<topic id, 32 hex digits>/<partition>",
    "`PartitionRecord`",
    "compare-and-set by its leader",
    "the topic is deleted",
    clients=Right.READ,
)
_kind(
    PARTITIONS,
    "/<2 digits>/<topic id>/<partition>/<7 digits>",
    "a chunk of older `PartitionSegment`s",
    "the multi that shortens the list",
    "all of it is below the log's start",
    clients=Right.READ,
)
BROKERS: Final = _kind(
    "/brokers",
    "/<broker id>",
    "`HeldNode` around `BrokerRegistration`",
    "the broker",
    "its session ends",
    clients=Right.READ,
    is_dumped=False,
)
GATEWAYS: Final = _kind(
    "/gateways",
    "/<host:port>",
    "`GatewayRecord`",
    "the gateway, at each start",
    "an operator removes it",
    clients=Right.READ,
    is_dumped=False,
)
CONTROLLER: Final = _kind(
    "/controller",
    "",
    "`HeldNode` around the id of the broker that is the controller",
    "the first candidate",
    "its session ends",
    clients=Right.READ,
    is_dumped=False,
)
PRODUCER_IDS: Final = _kind(
    "/ids/producers",
    "",
    "the first producer id that is in no block",
    "compare-and-set by brokers, 1,000 ids at a time",
    "for ever",
    clients=Right.READ,
)
REPLICA_IDS: Final = _kind(
    "/ids/replicas",
    "",
    "the first replica number that is not given out",
    "compare-and-set by brokers, one at a time",
    "for ever",
    clients=Right.READ,
)
REPLICAS: Final = _kind(
    "/replicas",
    "/<bookie id>",
    "the bookie's number for clients of topics",
    "the first broker that needs it",
    "for ever",
    clients=Right.READ,
)
IN_SYNC: Final = _kind(
    "/in-sync",
    "/<broker id>",
    "what the broker reports of its partitions' replicas",
    "compare-and-set by that broker",
    "for ever",
    clients=Right.READ,
    is_dumped=False,
)
REPAIR_KEY: Final = _kind(
    "/repair/key",
    "",
    "the key of repair, 32 random bytes, without a format version",
    "the first process of repair",
    "for ever",
    clients=Right.NONE,
    is_dumped=False,
)
LIFECYCLES: Final = _kind(
    "/repair/bookies",
    "/<bookie id>",
    "`BookieLifecycle`; without a node the bookie is active",
    "compare-and-set by operators and the auditor",
    "for ever",
    clients=Right.READ,
)
REPAIR_SETTINGS: Final = _kind(
    "/repair/settings",
    "",
    "the names and values of `RepairSettings` that were set",
    "compare-and-set by operators",
    "for ever",
    clients=Right.READ,
)
REPAIR_JOBS: Final = _kind(
    "/repair/jobs",
    "/<urgency>-<bytes, 16 digits>-<ledger id, 19 digits>",
    "`Job`; the version of the node above rises when jobs are published or queued again",
    "the auditor, or an operator",
    "the ledger needs no repair",
    clients=Right.READ,
    is_dumped=False,
)
REPAIR_CLAIMS: Final = _kind(
    "/repair/claims",
    "/<ledger id, 19 digits>",
    "`HeldNode` around `Claim`",
    "the worker that repairs the ledger",
    "it ends, or its session does",
    clients=Right.READ,
    is_dumped=False,
)
REPAIR_WORKERS: Final = _kind(
    "/repair/workers",
    "/<worker id>",
    "`HeldNode` without content",
    "the worker",
    "its session ends",
    clients=Right.READ,
    is_dumped=False,
)
AUDITOR: Final = _kind(
    "/repair/auditor",
    "",
    "`HeldNode` around the id of the auditor",
    "the first candidate",
    "its session ends",
    clients=Right.READ,
    is_dumped=False,
)
REPAIR_STATUS: Final = _kind(
    "/repair/status",
    "",
    "`RepairStatus`",
    "compare-and-set by the auditor",
    "for ever",
    clients=Right.READ,
    is_dumped=False,
)
SCRUBS: Final = _kind(
    "/repair/scrubs",
    "/<bookie id>",
    "`ScrubRecord`",
    "compare-and-set by the bookie; the request in it by operators",
    "for ever",
    clients=Right.READ,
    is_dumped=False,
)
ACLS: Final = _kind(
    "/security/acls",
    "/<shard>",
    "`AclBinding`s of some resources",
    "compare-and-set by brokers and `quire acl`",
    "for ever",
    clients=Right.READ,
)
USERS: Final = _kind(
    "/security/users",
    "/<escaped name>",
    "`UserRecord`",
    "compare-and-set by brokers and `quire user`",
    "the user is removed",
    clients=Right.NONE,
    is_dumped=False,
)
QUOTAS: Final = _kind(
    "/security/quotas",
    "/<types and names>",
    "`QuotaRecord`",
    "compare-and-set by brokers and `quire quota`",
    "its last value is removed",
    clients=Right.NONE,
)
LEDGER_GRANTS: Final = _kind(
    "/security/ledger-grants",
    "/<escaped principal>",
    "`GrantRecord`",
    "compare-and-set by `quire grant`",
    "its last role is removed",
    clients=Right.NONE,
)
AUDIT_TRAIL: Final = _kind(
    "/security/audit",
    "",
    "`AuditRecord`s, the oldest first",
    "compare-and-set by commands that change the metadata",
    "for ever",
    clients=Right.NONE,
)
RESTORE: Final = _kind(
    "/restore",
    "",
    "`RestoreRecord`",
    "`quire metadata restore`, `quire metadata accept-restore`, bookies that find it older",
    "for ever",
    clients=Right.READ,
    is_dumped=False,
)
NODE_RIGHTS: Final = _kind(
    "/node-rights",
    "",
    "`NodeRights`; without a node all nodes are open",
    "`quire metadata secure`",
    "`quire metadata secure --open`",
    clients=Right.READ,
    is_dumped=False,
)

ROOT: Final = "/"
IDS: Final = LEDGER_IDS.rpartition("/")[0]
REPAIR: Final = REPAIR_KEY.rpartition("/")[0]
REGISTER: Final = tuple(_kinds)
LEFT_OUT: Final = tuple(kind.root for kind in REGISTER if not kind.is_dumped)
"""Nodes that are not in a dump, with everything below them."""
CLIENT_RIGHTS: Final = MappingProxyType(
    {
        **{kind.root: kind.clients for kind in REGISTER},
        **dict.fromkeys((ROOT, IDS, REPAIR), Right.READ),
    }
)
"""Rights of clients by the root of a kind, and on the nodes above roots."""

LEVEL_DIGITS: Final = (4, 3, 3, 3, 3, 3)
DELETION_SHARDS: Final = 64
CHOSEN_ID_SHARDS: Final = 64

LINK_LEVEL_DIGITS: Final = (4, 3, 3)
APPLICATION_HASH_DIGITS: Final = 32
CHUNK_DIGITS: Final = 7

LEDGER_ID_DIGITS: Final = sum(LEVEL_DIGITS)

_INDEX_DIGITS: Final = sum(LINK_LEVEL_DIGITS)


def ledger_path(ledger_id: LedgerId) -> str:
    """Return the path of a ledger's metadata."""
    return "/".join((LEDGERS, *level_names(ledger_id)))


def level_names(ledger_id: LedgerId) -> tuple[str, ...]:
    """Return the names of a ledger's node and of the nodes above it, from the top."""
    assert is_ledger_id(ledger_id), ledger_id
    digits = f"{ledger_id:0{LEDGER_ID_DIGITS}}"
    names = []
    start = 0
    for count in LEVEL_DIGITS:
        names.append(digits[start : start + count])
        start += count
    return tuple(names)


def is_level_name(level: int, name: str) -> bool:
    """Return whether a name found at a level has the form that Quire uses there."""
    return len(name) == LEVEL_DIGITS[level] and name.isascii() and name.isdigit()


def ledger_id_of(names: Sequence[str]) -> LedgerId | None:
    """Return the ledger that a full sequence of level names represents; None if the number is not a
    valid ledger id.
    """
    value = int("".join(names))
    return LedgerId(value) if is_ledger_id(value) else None


def chosen_id_path(ledger_id: LedgerId) -> str:
    """Return the path of the permanent node that records that a client chose this id."""
    return f"{CHOSEN_IDS}/{ledger_id % CHOSEN_ID_SHARDS}/{ledger_id}"


def deletion_shard_path(shard: int) -> str:
    """Return the node above a shard of the deletion feed."""
    assert 0 <= shard < DELETION_SHARDS, shard
    return f"{DELETED}/{shard}"


def deletion_path(ledger_id: LedgerId) -> str:
    """Return the path that records the deletion of a ledger."""
    return f"{deletion_shard_path(ledger_id % DELETION_SHARDS)}/{ledger_id}"


def bookie_path(bookie_id: BookieId) -> str:
    """Return the path at which a live bookie is registered."""
    return f"{BOOKIES}/{bookie_id}"


def client_path(client_id: ClientId) -> str:
    """Return the path at which a live client is registered."""
    return f"{CLIENTS}/{client_id}"


def cookie_path(bookie_id: BookieId) -> str:
    """Return the path of a bookie's cookie."""
    return f"{COOKIES}/{bookie_id}"


def position_path(bookie_id: BookieId) -> str:
    """Return the path that records the end of a bookie's log."""
    return f"{POSITIONS}/{bookie_id}"


def chain_path(name: str) -> str:
    """Return the path of a chain's head."""
    return f"{CHAINS}/{name}"


def chain_creation_path(name: str) -> str:
    """Return the path of a chain's creation token."""
    return f"{chain_path(name)}/creation"


def chain_life_path(name: str, creation_token: bytes) -> str:
    """Return the path of the node that a chain with this creation token has, and no other."""
    return f"{chain_creation_path(name)}/{creation_token.hex()}"


def chain_owner_path(name: str) -> str:
    """Return the path of a chain's owner."""
    return f"{chain_path(name)}/owner"


def chain_links_path(name: str) -> str:
    """Return the node above a chain's links."""
    return f"{chain_path(name)}/links"


def chain_link_path(name: str, index: int) -> str:
    """Return the path of one link of a chain."""
    digits = f"{index:0{_INDEX_DIGITS}}"
    assert len(digits) == _INDEX_DIGITS, index
    return f"{chain_links_path(name)}/{digits[:4]}/{digits[4:7]}/{digits[7:]}"


def chain_applications_path(name: str) -> str:
    """Return the node above the applications that linked batches to a chain."""
    return f"{chain_path(name)}/applications"


def chain_application_path(name: str, application: str) -> str:
    """Return the path of an application's last batch. The application's name may contain any
    character.
    """
    digest = hashlib.sha256(application.encode()).hexdigest()[:APPLICATION_HASH_DIGITS]
    return f"{chain_applications_path(name)}/{digest[:2]}/{digest}"


def topic_path(name: str) -> str:
    """Return the path of a topic."""
    return f"{TOPICS}/{name}"


def topic_name_path(alike: str) -> str:
    """Return the path that records which topic holds a set of equivalent names."""
    return f"{TOPIC_NAMES}/{alike}"


def topic_partitions_path(topic_id: TopicId) -> str:
    """Return the node above the partitions of a topic."""
    digits = topic_id.hex()
    return f"{PARTITIONS}/{digits[:2]}/{digits}"


def partition_path(key: PartitionKey) -> str:
    """Return the path of a partition's list of ledgers."""
    return f"{topic_partitions_path(key.topic_id)}/{key.partition}"


def partition_chunk_path(key: PartitionKey, number: int) -> str:
    """Return the path of a chunk of a partition's older segments."""
    digits = f"{number:0{CHUNK_DIGITS}}"
    assert len(digits) == CHUNK_DIGITS, number
    return f"{partition_path(key)}/{digits}"


def broker_path(broker_id: int) -> str:
    """Return the path at which a live broker is registered."""
    return f"{BROKERS}/{broker_id}"


def replica_path(bookie_id: BookieId) -> str:
    """Return the path of a bookie's replica number."""
    return f"{REPLICAS}/{bookie_id}"


def in_sync_path(broker_id: int) -> str:
    """Return the path at which a broker reports which replicas of its partitions are in sync."""
    return f"{IN_SYNC}/{broker_id}"


def repair_claim_path(ledger_id: LedgerId) -> str:
    """Return the path that the worker that repairs a ledger holds."""
    assert is_ledger_id(ledger_id), ledger_id
    return f"{REPAIR_CLAIMS}/{ledger_id:0{LEDGER_ID_DIGITS}}"


def repair_worker_path(worker_id: str) -> str:
    """Return the path at which a live worker of repair is registered."""
    return f"{REPAIR_WORKERS}/{worker_id}"


def root_of(path: str) -> str:
    """Return the root of the kind of a node, or the node above roots that it is or is below; empty
    if there is none.
    """
    while path and path not in CLIENT_RIGHTS:
        path = path.rpartition("/")[0]
    return path


def client_rights(path: str) -> Right:
    """Return what a client may do to a node."""
    return CLIENT_RIGHTS.get(root_of(path), Right.NONE)


def made_for_clients() -> tuple[str, ...]:
    """Return the nodes in which clients create others, but cannot create themselves."""
    return tuple(path for path, rights in CLIENT_RIGHTS.items() if Right.CREATE in rights)
