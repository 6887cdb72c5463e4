"""Identity of the cluster: created once, and required by everything that did not create it."""

import random

import pytest

from metadata.errors import ClusterNotFoundError, MetadataFormatError
from metadata.paths import INSTANCE
from metadata.registry.cluster import ensure_cluster, require_cluster
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults


async def test_a_cluster_has_one_instance(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.acts = ["lost"]
    first = await ensure_cluster(store, random.Random(1))
    assert len(first) == 16
    assert await ensure_cluster(other_store, random.Random(2)) == first
    assert await require_cluster(other_store) == first


async def test_a_missing_cluster_is_not_created_by_a_reader(store: MemoryMetadataStore) -> None:
    with pytest.raises(ClusterNotFoundError, match="quire cluster init") as caught:
        await require_cluster(store)
    assert caught.value.address == store.address
    assert await store.children("/") == []


async def test_an_unreadable_instance_is_kept(store: MemoryMetadataStore) -> None:
    await store.create(INSTANCE, b"garbage")
    with pytest.raises(MetadataFormatError):
        await ensure_cluster(store, random.Random(1))
    with pytest.raises(MetadataFormatError):
        await require_cluster(store)
