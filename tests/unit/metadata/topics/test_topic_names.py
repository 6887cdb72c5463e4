"""Names that are the same in metrics are held by one topic at a time."""

import pytest

from metadata.errors import TopicNameHeldError
from metadata.store.interface import CompareAndSet, Create
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic_names import TopicNames, alike


async def test_a_name_without_equivalent_ones_is_not_held(store: MemoryMetadataStore) -> None:
    async def is_there(_name: str) -> bool:
        raise AssertionError("nothing is asked")

    assert await TopicNames(store, is_there).taking("orders-7") == []


async def test_an_equivalent_name_is_refused_while_its_topic_exists(
    store: MemoryMetadataStore,
) -> None:
    existing = ["a.b"]

    async def is_there(name: str) -> bool:
        return name in existing

    names = TopicNames(store, is_there)
    assert alike("a.b") == alike("a_b") == "a_b"
    (taking,) = await names.taking("a.b")
    assert isinstance(taking, Create)
    await store.create(taking.path, taking.value)
    (again,) = await names.taking("a.b")
    assert isinstance(again, CompareAndSet), "the same name takes it again"
    with pytest.raises(TopicNameHeldError, match=r"a\.b"):
        await names.taking("a_b")
    existing.clear()
    (other,) = await names.taking("a_b")
    assert isinstance(other, CompareAndSet)
    assert other.expected == (await store.get(taking.path)).version
