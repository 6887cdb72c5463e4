"""A topic changes completely or not at all, whatever answer is lost."""

import asyncio
import random
from functools import partial

import pytest

from metadata.errors import (
    InvalidTopicNameError,
    MetadataFormatError,
    StoreUnavailableError,
    TopicExistsError,
    TopicNameHeldError,
    TopicNotFoundError,
)
from metadata.paths import topic_name_path, topic_path
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic import TopicId, TopicRecord, new_topic, pack_topic
from metadata.topics.topic_store import TopicChange, TopicStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

NAME = "orders"
ACTS = ["", "lost", "dropped", "late"]


@pytest.fixture
def topics(store: MemoryMetadataStore, rng: random.Random) -> TopicStore:
    return TopicStore(store, rng)


@pytest.fixture
def other_topics(other_store: MemoryMetadataStore, rng: random.Random) -> TopicStore:
    return TopicStore(other_store, rng)


def topic(name: str = NAME, *leaders: int, number: int = 1) -> TopicRecord:
    topic_id = TopicId(number.to_bytes(16, "big"))
    return new_topic(name, topic_id, NOW_MS, leaders or (1, 2), {})


def led_by(broker_id: int) -> TopicChange:
    """Return the change that makes a broker lead partition 0, if it does not yet."""

    def change(record: TopicRecord) -> TopicRecord | None:
        is_led = record.partitions[0].leader == broker_id
        return None if is_led else record.with_leaders({0: broker_id})

    return change


async def leaders_of(topics: TopicStore, name: str = NAME) -> list[tuple[int, int]]:
    record, _ = await topics.get(name, fresh=True)
    return [(partition.leader, partition.leader_epoch) for partition in record.partitions]


async def is_there(topics: TopicStore, name: str) -> bool:
    try:
        record, _ = await topics.get(name, fresh=True)
    except TopicNotFoundError:
        return False
    return not record.is_deleted


async def test_a_topic_is_created_once(topics: TopicStore) -> None:
    made = await topics.create(topic())
    assert await topics.get(NAME) == (made, 0)
    with pytest.raises(TopicExistsError) as caught:
        await topics.create(topic(number=2))
    assert not caught.value.is_being_deleted
    assert await topics.names() == [NAME]


async def test_a_missing_name_is_not_found(topics: TopicStore) -> None:
    for call in (topics.get(NAME), topics.change(NAME, led_by(3))):
        with pytest.raises(TopicNotFoundError):
            await call
    assert await topics.names() == []
    await topics.finish_deletion(NAME, topic().topic_id)


async def test_an_invalid_name_never_becomes_a_path(topics: TopicStore) -> None:
    with pytest.raises(InvalidTopicNameError):
        await topics.get("../brokers")
    with pytest.raises(InvalidTopicNameError):
        topics.watch("a/b", lambda: None)


@pytest.mark.parametrize("act", ACTS)
async def test_a_creation_of_unknown_outcome_is_decided(
    topics: TopicStore, other_topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    await topics.create(topic("another"))
    faults.acts = [act]
    made = await topics.create(topic())
    await asyncio.sleep(faults.late_s * 2)
    assert await topics.get(NAME, fresh=True) == (made, 0)


async def test_of_many_creators_one_wins(topics: TopicStore, other_topics: TopicStore) -> None:
    both = [topics, other_topics]
    results = await asyncio.gather(
        *[both[i % 2].create(topic(number=i)) for i in range(10)], return_exceptions=True
    )
    made = [result for result in results if isinstance(result, TopicRecord)]
    assert len(made) == 1
    assert sum(isinstance(result, TopicExistsError) for result in results) == 9
    assert (await topics.get(NAME))[0] == made[0]


@pytest.mark.parametrize("act", ["", "lost", "dropped", "late"])
async def test_one_of_several_topics_with_equivalent_names_is_created(
    topics: TopicStore, other_topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    await topics.create(topic("another.one"))
    faults.acts = [act]
    names = ["a.b.c", "a_b.c", "a.b_c", "a_b_c"]
    both = [topics, other_topics]
    results = await asyncio.gather(
        *[both[i % 2].create(topic(name, number=i)) for i, name in enumerate(names)],
        return_exceptions=True,
    )
    await asyncio.sleep(faults.late_s * 2)
    (made,) = [result for result in results if isinstance(result, TopicRecord)]
    refused = [result for result in results if isinstance(result, TopicNameHeldError)]
    assert [held_error.holder for held_error in refused] == [made.name] * 3
    assert await topics.names() == sorted([made.name, "another.one"])


@pytest.mark.parametrize("act", ["", "lost", "dropped", "late"])
async def test_an_equivalent_name_is_free_once_the_topic_is_deleted(
    topics: TopicStore, other_topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    first = await topics.create(topic("a.b"))
    await topics.change("a.b", TopicRecord.with_deletion)
    await topics.finish_deletion("a.b", first.topic_id)
    faults.acts = [act]
    results = await asyncio.gather(
        topics.create(topic("a.b", number=2)),
        other_topics.create(topic("a_b", number=3)),
        return_exceptions=True,
    )
    await asyncio.sleep(faults.late_s * 2)
    assert sorted(type(result).__name__ for result in results) == [
        "TopicNameHeldError",
        "TopicRecord",
    ]
    there = [name for name in ("a.b", "a_b") if await is_there(topics, name)]
    assert len(there) == 1
    (made,) = [result for result in results if isinstance(result, TopicRecord)]
    assert there == [made.name]


async def test_a_topic_from_before_names_were_held_is_created_again(
    store: MemoryMetadataStore, topics: TopicStore
) -> None:
    path, first = topic_path("a.b"), topic("a.b")
    await store.create(path, pack_topic(path, first))
    await topics.change("a.b", TopicRecord.with_deletion)
    await topics.finish_deletion("a.b", first.topic_id)
    async with asyncio.timeout(10):
        made = await topics.create(topic("a.b", number=2))
    assert made.topic_id != first.topic_id
    with pytest.raises(TopicNameHeldError):
        await topics.create(topic("a_b", number=3))


async def test_the_first_topic_may_have_dots_in_its_name(topics: TopicStore) -> None:
    made = await topics.create(topic("a.b"))
    assert await topics.get("a.b", fresh=True) == (made, 0)
    with pytest.raises(TopicExistsError):
        await topics.create(topic("a.b", number=2))
    with pytest.raises(TopicNameHeldError) as caught:
        await topics.create(topic("a_b", number=3))
    assert caught.value.holder == "a.b"


async def test_a_malformed_holder_is_refused_and_kept(
    topics: TopicStore, store: MemoryMetadataStore
) -> None:
    await store.create(topic_name_path("a_b"), b"\x92\x01\x02")
    with pytest.raises(MetadataFormatError):
        await topics.create(topic("a.b"))
    assert await topics.names() == []


@pytest.mark.parametrize("act", ACTS)
async def test_a_change_of_unknown_outcome_applies_once(
    topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    await topics.create(topic())
    faults.acts = [act]
    record = await topics.change(NAME, lambda each: each.with_leaders({0: 7}))
    assert record.partitions[0].leader_epoch == 1
    await asyncio.sleep(faults.late_s * 2)
    assert await leaders_of(topics) == [(7, 1), (2, 0)]


async def test_an_unchanged_topic_is_not_written(
    topics: TopicStore, faults: ScriptedFaults
) -> None:
    made = await topics.create(topic())
    faults.writes.clear()
    assert await topics.change(NAME, led_by(1)) == made
    assert faults.writes == []


async def test_an_old_state_is_read_again_before_a_change_is_skipped(
    topics: TopicStore,
    other_topics: TopicStore,
    faults: ScriptedFaults,
) -> None:
    await topics.create(topic())
    await other_topics.change(NAME, led_by(5))
    faults.missed = 1
    record = await topics.change(NAME, led_by(1))
    assert (record.partitions[0].leader, record.partitions[0].leader_epoch) == (1, 2)


async def test_many_writers_lose_no_change(topics: TopicStore, other_topics: TopicStore) -> None:
    await topics.create(topic(NAME, *[0] * 20))
    both = [topics, other_topics]
    work = [
        both[i % 2].change(NAME, partial(TopicRecord.with_leaders, leaders={i: 9}))
        for i in range(20)
    ]
    await asyncio.gather(*work)
    assert await leaders_of(topics) == [(9, 1)] * 20


async def test_many_topics_change_in_few_writes(topics: TopicStore, faults: ScriptedFaults) -> None:
    names = [f"t{i}" for i in range(300)]
    for name in names:
        await topics.create(topic(name))
    faults.writes.clear()
    changes = {name: led_by(5) for name in [*names, "not-there"]}
    changed = await topics.change_many(changes)
    assert list(changed) == names
    assert len(faults.writes) < 12
    for name in names:
        assert await leaders_of(topics, name) == [(5, 1), (2, 0)]


@pytest.mark.parametrize("act", ACTS)
async def test_unknown_outcomes_of_many_changes_are_decided_one_by_one(
    topics: TopicStore, other_topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    names = [f"t{i}" for i in range(60)]
    for name in names:
        await topics.create(topic(name))
    faults.acts = ["", "", "", "", act]
    work = topics.change_many({name: lambda each: each.with_leaders({1: 8}) for name in names})
    others = other_topics.change_many({name: led_by(5) for name in names[::7]})
    await asyncio.gather(work, others)
    await asyncio.sleep(faults.late_s * 2)
    for number, name in enumerate(names):
        assert await leaders_of(topics, name) == [(1, 0) if number % 7 else (5, 1), (8, 1)]


async def test_a_refusing_service_raises(topics: TopicStore, faults: ScriptedFaults) -> None:
    faults.acts = ["", "refused"]  # the parent is made first
    with pytest.raises(StoreUnavailableError):
        await topics.create(topic())
    await topics.create(topic())
    for call in (topics.change(NAME, led_by(5)), topics.change_many({NAME: led_by(5)})):
        faults.acts = ["refused"]
        with pytest.raises(StoreUnavailableError):
            await call
    assert await leaders_of(topics) == [(1, 0), (2, 0)]
    faults.acts = ["dropped", "refused", "refused"]
    await topics.change(NAME, led_by(5))
    assert await leaders_of(topics) == [(5, 1), (2, 0)]


async def test_a_name_is_free_again_once_the_ledgers_are_gone(topics: TopicStore) -> None:
    first = await topics.create(topic())
    await topics.change(NAME, lambda each: each.with_leaders({1: 3}))
    await topics.change(NAME, TopicRecord.with_deletion)
    assert (await topics.get(NAME))[0].is_deleted
    with pytest.raises(TopicExistsError) as caught:
        await topics.create(topic(number=2))
    assert caught.value.is_being_deleted
    await topics.finish_deletion(NAME, first.topic_id)
    with pytest.raises(TopicNotFoundError):
        await topics.get(NAME)
    with pytest.raises(TopicNotFoundError):
        await topics.change(NAME, led_by(1))
    assert await topics.names() == [NAME]
    again = await topics.create(topic(number=2))
    assert await leaders_of(topics) == [(1, 2), (2, 2)]
    assert (await topics.get(NAME))[0] == again


@pytest.mark.parametrize("act", ACTS)
async def test_a_creation_over_a_tombstone_is_decided(
    topics: TopicStore, faults: ScriptedFaults, act: str
) -> None:
    await topics.create(topic())
    await topics.change(NAME, TopicRecord.with_deletion)
    await topics.finish_deletion(NAME, topic().topic_id)
    faults.acts = ["", act]  # the create that finds the node, then the write
    made = await topics.create(topic(number=2))
    await asyncio.sleep(faults.late_s * 2)
    assert (await topics.get(NAME, fresh=True))[0] == made
    assert await leaders_of(topics) == [(1, 1), (2, 1)]


async def test_a_late_end_of_a_deletion_does_not_touch_the_next_topic(topics: TopicStore) -> None:
    first = await topics.create(topic())
    await topics.finish_deletion(NAME, first.topic_id)
    assert not (await topics.get(NAME))[0].is_deleted
    await topics.change(NAME, TopicRecord.with_deletion)
    for _ in range(2):
        await topics.finish_deletion(NAME, first.topic_id)
    second = await topics.create(topic(number=2))
    await topics.change(NAME, TopicRecord.with_deletion)
    await topics.finish_deletion(NAME, first.topic_id)
    assert (await topics.get(NAME))[0].partitions == second.partitions


async def test_watches_report_new_topics_and_changes(topics: TopicStore) -> None:
    await topics.create(topic("another"))
    named, changed = asyncio.Event(), asyncio.Event()
    topics.watch_names(named.set)
    topics.watch("another", changed.set)
    await asyncio.sleep(1)
    named.clear()
    changed.clear()
    await topics.create(topic())
    await topics.change("another", led_by(5))
    async with asyncio.timeout(5):
        await named.wait()
        await changed.wait()


async def test_an_unreadable_value_is_a_format_error(
    topics: TopicStore, store: MemoryMetadataStore
) -> None:
    await store.create(topic_path(NAME), b"\x92\x01\x02")
    with pytest.raises(MetadataFormatError):
        await topics.get(NAME)
