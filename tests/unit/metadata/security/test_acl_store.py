"""Access control lists in the store: changed by several writers, and followed."""

import asyncio
import random
from dataclasses import replace

import pytest

from metadata.errors import StoreUnavailableError
from metadata.security.acl_errors import InvalidAclError
from metadata.security.acl_store import AclStore, AclView, acl_shard
from metadata.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.until import until

READS = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
WRITES = replace(READS, operation=Operation.WRITE)
BOB = replace(READS, principal="User:bob")
OTHER = replace(READS, name="a/b%..")
EVERYTHING = AclFilter()


async def test_bindings_are_added_selected_and_removed(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls = AclStore(store, rng)
    assert await acls.select(EVERYTHING) == []
    await acls.add([READS, WRITES, OTHER])
    await acls.add([READS])
    assert await acls.select(EVERYTHING) == sorted([READS, WRITES, OTHER])
    assert await acls.remove([AclFilter(name="orders", operation=Operation.READ)]) == [READS]
    assert await acls.remove([AclFilter(name="orders", operation=Operation.READ)]) == []
    assert await acls.select(EVERYTHING) == sorted([WRITES, OTHER])


async def test_an_invalid_binding_changes_nothing(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls = AclStore(store, rng)
    with pytest.raises(InvalidAclError):
        await acls.add([READS, replace(READS, name="")])
    assert await acls.select(EVERYTHING) == []


async def test_changes_at_once_are_all_kept(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = AclStore(store, rng), AclStore(other_store, rng)
    await here.add([READS])
    await asyncio.gather(
        here.add([WRITES]), there.add([BOB]), here.remove([AclFilter(operation=Operation.READ)])
    )
    found = await here.select(EVERYTHING)
    assert WRITES in found
    assert READS not in found


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_unknown_outcomes_are_decided(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    acls = AclStore(store, rng)
    faults.acts = [act]
    await acls.add([READS])
    assert await acls.select(EVERYTHING) == [READS]
    faults.acts = [act]
    assert await acls.remove([EVERYTHING]) == [READS]
    assert await acls.select(EVERYTHING) == []


async def test_a_view_follows_changes(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls, view = AclStore(other_store, rng), AclView(store, rng)
    changes: list[list[AclBinding]] = []
    view.on_change(lambda: changes.append(sorted(view.bindings)))
    await acls.add([READS])
    await view.start()
    assert list(view.bindings) == [READS]
    await acls.add([OTHER])
    await until(lambda: sorted(view.bindings) == sorted([READS, OTHER]))
    await acls.remove([EVERYTHING])
    await until(lambda: not list(view.bindings))
    assert changes[0] == [READS]
    assert changes[-1] == []
    await view.aclose()


async def test_a_view_shows_an_own_change_after_a_refresh(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls, view = AclStore(store, rng), AclView(store, rng)
    await view.start()
    await acls.add([READS, OTHER])
    await view.refresh()
    assert sorted(view.bindings) == sorted([READS, OTHER])
    await view.aclose()


async def test_a_view_reports_a_shard_that_it_cannot_read(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls, view = AclStore(store, rng), AclView(store, rng)
    await acls.add([READS])
    await view.start()
    assert view.is_readable
    path = acl_shard(READS.shard).path
    stored = await store.get(path)
    version = await store.compare_and_set(path, b"damaged", stored.version)
    await until(lambda: not view.is_readable)
    assert list(view.bindings) == [READS], "the last known ones are kept"
    await store.compare_and_set(path, stored.value, version)
    await until(lambda: view.is_readable)
    await view.aclose()


async def test_a_view_that_begins_with_a_damaged_shard_is_not_readable(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    acls, view = AclStore(store, rng), AclView(store, rng)
    await acls.add([READS])
    path = acl_shard(READS.shard).path
    stored = await store.get(path)
    await store.compare_and_set(path, b"damaged", stored.version)
    await view.start()
    assert not view.is_readable, "a missing rule may be one that denies"
    await view.aclose()


async def test_a_view_does_not_start_without_the_store(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.meets, faults.refusals = reads_of(store), 1
    with pytest.raises(StoreUnavailableError):
        await AclView(store, rng).start()
