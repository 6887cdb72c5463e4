"""The table of rights: every path has a row, and clients change only what they write."""

import inspect
from pathlib import Path

import pytest

from metadata import paths
from metadata.ids import BookieId, ClientId, LedgerId
from metadata.paths import (
    CLIENT_RIGHTS,
    IDS,
    REPAIR,
    ROOT,
    Right,
    client_rights,
    made_for_clients,
)
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import TopicId

LEDGER = LedgerId(1234)
TOKEN = b"\x07" * 16
TOPIC = TopicId(b"\x08" * 16)
KEY = PartitionKey(TOPIC, 7)
B = BookieId("b-1")

ROOTS = {
    name: each
    for name, each in vars(paths).items()
    if name.isupper() and str(each)[:1] == "/" and name not in ("ROOT", "IDS", "REPAIR")
}
FUNCTIONS = {
    "ledger_path": (paths.ledger_path(LEDGER), paths.LEDGERS),
    "chosen_id_path": (paths.chosen_id_path(LEDGER), paths.CHOSEN_IDS),
    "deletion_shard_path": (paths.deletion_shard_path(3), paths.DELETED),
    "deletion_path": (paths.deletion_path(LEDGER), paths.DELETED),
    "bookie_path": (paths.bookie_path(B), paths.BOOKIES),
    "client_path": (paths.client_path(ClientId("c")), paths.CLIENTS),
    "cookie_path": (paths.cookie_path(B), paths.COOKIES),
    "position_path": (paths.position_path(B), paths.POSITIONS),
    "chain_owner_path": (paths.chain_owner_path("a"), paths.CHAINS),
    "chain_path": (paths.chain_path("a"), paths.CHAINS),
    "chain_creation_path": (paths.chain_creation_path("a"), paths.CHAINS),
    "chain_life_path": (paths.chain_life_path("a", TOKEN), paths.CHAINS),
    "chain_links_path": (paths.chain_links_path("a"), paths.CHAINS),
    "chain_link_path": (paths.chain_link_path("a", 5), paths.CHAINS),
    "chain_applications_path": (paths.chain_applications_path("a"), paths.CHAINS),
    "chain_application_path": (paths.chain_application_path("a", "b"), paths.CHAINS),
    "topic_path": (paths.topic_path("t"), paths.TOPICS),
    "topic_name_path": (paths.topic_name_path("t"), paths.TOPIC_NAMES),
    "topic_partitions_path": (paths.topic_partitions_path(TOPIC), paths.PARTITIONS),
    "partition_path": (paths.partition_path(KEY), paths.PARTITIONS),
    "partition_chunk_path": (paths.partition_chunk_path(KEY, 5), paths.PARTITIONS),
    "broker_path": (paths.broker_path(1), paths.BROKERS),
    "replica_path": (paths.replica_path(B), paths.REPLICAS),
    "in_sync_path": (paths.in_sync_path(1), paths.IN_SYNC),
    "repair_claim_path": (paths.repair_claim_path(LEDGER), paths.REPAIR_CLAIMS),
    "repair_worker_path": (paths.repair_worker_path("w"), paths.REPAIR_WORKERS),
}
CHANGED_BY_CLIENTS = {
    paths.LEDGERS,
    paths.CHAINS,
    paths.CLIENTS,
    paths.DELETED,
    paths.CHOSEN_IDS,
    paths.LEDGER_IDS,
}
"""All nodes at which clients change something. A new one is a decision on security."""


def test_every_path_has_a_row() -> None:
    """A new path is decided here, and in the table of docs/security.md."""
    missing = [name for name, path in ROOTS.items() if path not in CLIENT_RIGHTS]
    assert missing == []
    assert set(CLIENT_RIGHTS) == {*ROOTS.values(), ROOT, REPAIR, IDS}


def test_every_function_of_paths_is_below_a_row() -> None:
    names = [
        name
        for name, function_type in inspect.getmembers(paths, inspect.isfunction)
        if function_type.__module__ == paths.__name__ and name.endswith("_path")
    ]
    assert sorted(FUNCTIONS) == sorted(names)
    for path, row in FUNCTIONS.values():
        assert client_rights(path) == CLIENT_RIGHTS[row], path


def test_modules_build_their_paths_from_those_of_the_table() -> None:
    """A path that is written out elsewhere would have no row."""
    product = Path(paths.__file__).parent
    literal = [
        f"{module.name}: {root}"
        for module in sorted(product.rglob("*.py"))
        if module.name != "paths.py"
        for root in ROOTS.values()
        if f'"{root}"' in module.read_text() or f'"{root}/' in module.read_text()
    ]
    assert literal == []


def test_clients_change_only_ledgers_chains_ids_and_their_session() -> None:
    changed = {path for path, rights in CLIENT_RIGHTS.items() if rights & ~Right.READ}
    assert changed == CHANGED_BY_CLIENTS
    assert not any(Right.ADMIN in rights for rights in CLIENT_RIGHTS.values())


@pytest.mark.parametrize(
    "path", [paths.REPAIR_KEY, "/security", "/security/users/alice", "/new", "/ledgers2"]
)
def test_secrets_and_unknown_paths_are_for_servers_alone(path: str) -> None:
    assert client_rights(path) is Right.NONE


def test_nodes_that_clients_need_are_made_for_them() -> None:
    assert set(made_for_clients()) == CHANGED_BY_CLIENTS - {paths.LEDGER_IDS}
