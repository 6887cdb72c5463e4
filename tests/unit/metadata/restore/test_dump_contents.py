"""Every path is in a dump or is left out for a reason."""

from metadata import paths
from metadata.paths import (
    BOOKIES,
    CHOSEN_IDS,
    DELETED,
    LEDGER_IDS,
    LEDGERS,
    LEFT_OUT,
    REGISTER,
    REPAIR_KEY,
)
from metadata.restore.dump_contents import READS_AT_ONCE, root_names
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.dumps import paths_in_dump

KEPT = {
    "ACLS",
    "QUOTAS",
    "LEDGERS",
    "LEDGER_IDS",
    "CHOSEN_IDS",
    "DELETED",
    "COOKIES",
    "POSITIONS",
    "INSTANCE",
    "CHAINS",
    "TOPICS",
    "TOPIC_NAMES",
    "PARTITIONS",
    "PRODUCER_IDS",
    "REPLICA_IDS",
    "REPLICAS",
    "LIFECYCLES",
    "REPAIR_SETTINGS",
    "LEDGER_GRANTS",
    "AUDIT_TRAIL",
}
"""Names of the paths in `metadata.paths` that a restore needs. A new path belongs here, or its row
says that it is left out.
"""


def test_every_path_is_kept_or_left_out() -> None:
    roots = {kind.root for kind in REGISTER}
    named = {
        name: value
        for name, value in vars(paths).items()
        if name.isupper() and isinstance(value, str) and value in roots
    }
    assert {*named.values()} == roots
    assert {name for name, value in named.items() if value not in LEFT_OUT} == KEPT


async def test_a_node_comes_before_those_below_it(store: MemoryMetadataStore) -> None:
    count = READS_AT_ONCE * 2 + 1
    for number in range(count):
        await store.create(f"{LEDGERS}/a/{number:04}", b"x")
    await store.create("/instance", b"i")
    found = await paths_in_dump(store)
    assert found[:3] == ["/instance", LEDGERS, f"{LEDGERS}/a"]
    assert found[3:] == [f"{LEDGERS}/a/{number:04}" for number in range(count)]


async def test_counters_are_read_last_and_lists_before_ledgers(store: MemoryMetadataStore) -> None:
    for path in (LEDGER_IDS, "/ledgers/1", "/chains/a", "/topics/a", f"{CHOSEN_IDS}/1/1", DELETED):
        await store.create(path, b"")
    top = [path for path in await paths_in_dump(store) if path.count("/") == 1]
    assert top == ["/chains", "/deleted", "/topics", "/ledgers", "/ids"]


async def test_what_processes_make_again_is_left_out(store: MemoryMetadataStore) -> None:
    for path in (f"{BOOKIES}/b", REPAIR_KEY, "/restore", "/zookeeper/quota"):
        await store.create(path, b"secret")
    await store.create("/repair/new", b"", ephemeral=True)
    assert await paths_in_dump(store) == ["/repair"]
    assert await root_names(store) == ["bookies", "repair", "restore"]
