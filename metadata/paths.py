"""Paths of all nodes that Quire uses; each limits how many children a node can have.

Leaves reading and writing them to the modules that own the values.

Format: a ledger id is 19 decimal digits, split into one level of 4 and five of 3:

    /ledgers/0000/000/000/000/001/234     ledger 1234, value: `codec.py`
    /ids/ledgers                          the next ledger id to give out, value: `ledger_ids.py`
    /ids/chosen/17/1234                   an id that a client chose, in shard `ledger id mod 64`; no
                                          value, and never removed
    /deleted/17/1234                      a deletion, in shard `ledger id mod 64`, value:
                                          `deletion_feed.py`
    /bookies/<bookie id>                  ephemeral, value: `registration.py`
    /clients/<client id>                  ephemeral, value: `registration.py`
    /cookies/<bookie id>                  a bookie's identity, value: `cookies.py`
    /positions/<bookie id>                the end of a bookie's log, value: `positions.py`
    /instance                             the cluster's identity, value: `registry/cluster.py`
    /chains/<name>                        the head of a chain, value: `chain.py`
    /chains/<name>/creation               the chain's creation token, value: `chain_creation.py`
    /chains/<name>/creation/<token>       empty; every change checks that it exists: `chain_life.py`
    /chains/<name>/owner                  the chain's owner, value: `chain_owner.py`
    /chains/<name>/links/0000/012/345     link 12345 of it, value: `chain.py`
    /chains/<name>/applications/ab/<hash> the last batch of an application, value: `chain.py`
    /topics/<name>                        a topic, value: `topic.py`
    /topic-names/<name with _ for .>      which topic holds these equivalent names, value:
                                          `topic_names.py`
    /partitions/ab/<topic id>/7           the list of ledgers of its partition 7, value:
                                          `partition.py`; the topic id is 32 hex digits
    /partitions/ab/<topic id>/7/0000012   chunk 12 of that list, value: `partition.py`
    /brokers/<broker id>                  ephemeral, value: `broker_registration.py`
    /controller                           ephemeral, value: `election.py`
    /ids/producers, /ids/replicas         the next number to give out, value: `number_blocks.py`
    /replicas/<bookie id>                 a bookie's number as a replica, value:
                                          `replica_numbers.py`
    /in-sync/<broker id>                  what a broker reports of its partitions' replicas, value:
                                          `in_sync.py`
    /repair/key                           the key of repair, value: `repair_key.py`
    /repair/bookies/<bookie id>           the state of a bookie, value: `lifecycle.py`
    /repair/settings                      what operators set for repair, value: `settings.py`
    /repair/jobs/<name>                   a published job, value and name: `jobs.py`
    /repair/claims/0000000000000001234    ephemeral, of the worker that repairs ledger 1234, value:
                                          `claims.py`
    /repair/workers/<worker id>           ephemeral, value: `workers.py`
    /repair/auditor                       ephemeral, value: `auditor_election.py`
    /repair/status                        the auditor's summary, value: `status.py`
    /repair/scrubs/<bookie id>            a bookie's scrub and damaged entries, value: `scrub.py`
    /security/acls/17                     a shard of the access control lists, value: `acls.py`
    /security/users/<escaped name>        a user of brokers, value and name: `users.py`
    /security/quotas/<types and names>    quotas of users, client ids or addresses, value and name:
                                          `quotas.py`
    /security/ledger-grants/<principal>   roles of a principal on ledgers, value and name:
                                          `ledger_grants.py`
    /security/audit                       the commands that changed the metadata, value:
                                          `audit_trail.py`
    /restore                              the restore that wrote this metadata, value:
                                          `restore_record.py`
    /node-rights                          which logins are servers and clients, value:
                                          `rights_record.py`

Invariants: the first level of ledgers has at most 10,000 names and each other level at most 1,000;
names sort in the order of the ids; at most JOBS_MAX jobs are published; there are
at most USERS_MAX users and QUOTAS_MAX quotas.

Source: metadata design, "Ledgers", "Ids" and "Deletion"; topics design, "The mapping"; protocol
rule 9.1.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from metadata.ids import BookieId, ClientId, LedgerId, is_ledger_id
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import TopicId

LEDGERS: Final = "/ledgers"
LEDGER_IDS: Final = "/ids/ledgers"
CHOSEN_IDS: Final = "/ids/chosen"
DELETED: Final = "/deleted"
BOOKIES: Final = "/bookies"
CLIENTS: Final = "/clients"
COOKIES: Final = "/cookies"
POSITIONS: Final = "/positions"
INSTANCE: Final = "/instance"
CHAINS: Final = "/chains"
TOPICS: Final = "/topics"
TOPIC_NAMES: Final = "/topic-names"
PARTITIONS: Final = "/partitions"
BROKERS: Final = "/brokers"
CONTROLLER: Final = "/controller"
PRODUCER_IDS: Final = "/ids/producers"
REPLICA_IDS: Final = "/ids/replicas"
REPLICAS: Final = "/replicas"
IN_SYNC: Final = "/in-sync"
REPAIR_KEY: Final = "/repair/key"
LIFECYCLES: Final = "/repair/bookies"
REPAIR_SETTINGS: Final = "/repair/settings"
REPAIR_JOBS: Final = "/repair/jobs"
REPAIR_CLAIMS: Final = "/repair/claims"
REPAIR_WORKERS: Final = "/repair/workers"
AUDITOR: Final = "/repair/auditor"
REPAIR_STATUS: Final = "/repair/status"
SCRUBS: Final = "/repair/scrubs"
ACLS: Final = "/security/acls"
USERS: Final = "/security/users"
QUOTAS: Final = "/security/quotas"
LEDGER_GRANTS: Final = "/security/ledger-grants"
AUDIT_TRAIL: Final = "/security/audit"
RESTORE: Final = "/restore"
NODE_RIGHTS: Final = "/node-rights"

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
