"""Deletion of nodes and trees: an unknown outcome is decided by a read, and checks hold."""

import random

import pytest

from metadata.errors import NodeNotFoundError, StoreUnavailableError, VersionConflictError
from metadata.ids import Version
from metadata.store.interface import Check, find
from metadata.store.memory import MemoryMetadataStore
from metadata.store.tree_deletion import drop, drop_tree
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import taken_s

TREE = ("/t/a/x", "/t/a/y", "/t/b")


async def make_tree(store: MemoryMetadataStore) -> None:
    for path in TREE:
        await store.create(path, b"")


async def test_a_node_is_deleted_whatever_its_version(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    await store.create("/n", b"")
    await store.compare_and_set("/n", b"1", Version(0))
    assert await drop(store, "/n", rng)
    assert await find(store, "/n") is None
    assert await drop(store, "/n", rng), "a node that is gone counts as deleted"


async def test_a_node_with_children_stays(store: MemoryMetadataStore, rng: random.Random) -> None:
    await make_tree(store)
    assert not await drop(store, "/t", rng)
    assert await store.children("/t") == ["a", "b"]


async def test_a_tree_is_deleted_and_nothing_beside_it(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    await make_tree(store)
    await store.create("/other", b"")
    await drop_tree(store, "/t", rng)
    assert await store.children("/") == ["other"]


@pytest.mark.usefixtures("stale_reads")
async def test_a_server_that_lags_hides_nothing(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    await make_tree(other_store)
    await drop_tree(store, "/t", rng)
    assert await find(other_store, "/t") is None
    await other_store.create("/late", b"")
    assert await drop(store, "/late", rng)
    assert await find(other_store, "/late") is None
    await other_store.create("/one", b"")
    await other_store.create("/one/last", b"")
    await drop_tree(store, "/one", rng)
    assert await other_store.children("/", fresh=True) == []


@pytest.mark.parametrize("act", ["lost", "dropped"])
async def test_an_unknown_outcome_is_decided_by_a_read(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    await store.create("/n", b"")
    faults.acts = [act]
    assert await drop(store, "/n", rng)
    assert await find(store, "/n") is None


async def test_a_deletion_of_unknown_outcome_waits_until_the_service_answers(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    await store.create("/n", b"")
    faults.acts = ["dropped"]
    faults.meets, faults.refusals = reads_of(store), 0

    async def drop_while_reads_fail() -> None:
        faults.acts = ["dropped", "refused", "refused"]
        assert await drop(store, "/n", rng)

    assert await taken_s(drop_while_reads_fail()) > 0, "it pauses between two attempts"
    assert await find(store, "/n") is None


async def test_a_service_that_does_not_answer_raises_while_nothing_was_written(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    await store.create("/n", b"")
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await drop(store, "/n", rng)
    assert await find(store, "/n") is not None


async def test_a_node_that_changes_meanwhile_is_deleted(
    store: MemoryMetadataStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("/n", b"")
    delete, conflicts = store.delete, ["/n"]

    async def delete_after_a_change(path: str, expected: Version) -> None:
        if conflicts:
            conflicts.pop()
            raise VersionConflictError(path, expected)
        await delete(path, expected)

    monkeypatch.setattr(store, "delete", delete_after_a_change)
    assert await drop(store, "/n", rng)
    assert not conflicts
    assert await find(store, "/n") is None


async def test_a_deletion_takes_effect_only_while_its_check_holds(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    await make_tree(store)
    await store.create("/lock", b"")
    checks = [Check("/lock", Version(0))]
    assert await drop(store, "/t/b", rng, checks=checks)
    await store.delete("/lock", Version(0))
    with pytest.raises(NodeNotFoundError) as raised:
        await drop_tree(store, "/t", rng, checks=checks)
    assert raised.value.path == "/lock"
    assert await store.children("/t/a") == ["x", "y"]
