"""Topics are read as they are now, changed in limited steps, and retried after pauses."""

import asyncio
import random
from collections import Counter

import pytest

from metadata.errors import (
    MetadataError,
    StoreUnavailableError,
    TopicExistsError,
    TopicNotFoundError,
)
from metadata.paths import TOPICS, topic_name_path, topic_path
from metadata.store import value_changes
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import StoreCall
from metadata.topics import topic_store
from metadata.topics.topic import TopicId, TopicRecord, new_topic
from metadata.topics.topic_names import TopicNames
from metadata.topics.topic_store import TopicChange, TopicStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS, RETRIES, RETRIES_S_MIN, taken_s

NAME = "orders"


@pytest.fixture
def topics(store: MemoryMetadataStore, rng: random.Random) -> TopicStore:
    return TopicStore(store, rng)


@pytest.fixture
def others(other_store: MemoryMetadataStore, rng: random.Random) -> TopicStore:
    return TopicStore(other_store, rng)


def topic(name: str = NAME, number: int = 1) -> TopicRecord:
    return new_topic(name, TopicId(number.to_bytes(16, "big")), NOW_MS, (1, 2), {})


def led_by(broker_id: int) -> TopicChange:
    return lambda record: record.with_leaders({0: broker_id})


async def leader_of(topics: TopicStore, name: str) -> int:
    record, _ = await topics.get(name, fresh=True)
    return record.partitions[0].leader


async def deleted(topics: TopicStore, record: TopicRecord) -> None:
    await topics.change(record.name, TopicRecord.with_deletion)
    await topics.finish_deletion(record.name, record.topic_id)


async def test_an_ordinary_topic_is_created_in_one_write(
    store: MemoryMetadataStore, topics: TopicStore, faults: ScriptedFaults
) -> None:
    await store.create(TOPICS, b"")
    faults.writes.clear()
    await topics.create(topic())
    assert faults.writes == ["create"]


@pytest.mark.usefixtures("stale_reads")
async def test_reads_see_what_another_process_just_wrote(
    topics: TopicStore, others: TopicStore
) -> None:
    await others.create(topic("another"))
    made = await others.create(topic())
    assert await topics.names() == ["another", NAME]
    await others.change("another", led_by(5))
    assert (await topics.get(NAME))[0] == made
    with pytest.raises(TopicNotFoundError):
        await topics.get("missing", fresh=True)
    await others.create(topic("third", number=3))
    assert await topics.topic_ids() == {topic(number=1).topic_id, topic(number=3).topic_id}


@pytest.mark.usefixtures("stale_reads")
async def test_a_read_that_is_not_fresh_may_be_old_and_a_fresh_one_is_not(
    topics: TopicStore, others: TopicStore
) -> None:
    made = await others.create(topic())
    changed = await others.change(NAME, led_by(5))
    assert await topics.get(NAME) == (made, 0)
    assert await topics.get(NAME, fresh=True) == (changed, 1)


@pytest.mark.usefixtures("stale_reads")
async def test_a_topic_that_was_just_created_is_changed(
    topics: TopicStore, others: TopicStore
) -> None:
    await others.create(topic())
    changed = await topics.change(NAME, led_by(5))
    assert changed.partitions[0].leader == 5


@pytest.mark.usefixtures("stale_reads")
async def test_names_that_just_became_free_can_be_taken(
    topics: TopicStore, others: TopicStore
) -> None:
    first, dotted = await others.create(topic()), await others.create(topic("a.b", number=2))
    await deleted(others, first)
    assert (await topics.create(topic(number=3))).topic_id == topic(number=3).topic_id
    await deleted(others, dotted)
    assert (await topics.create(topic("a_b", number=4))).name == "a_b"


async def test_a_name_that_no_topic_has_can_be_taken(
    store: MemoryMetadataStore, topics: TopicStore
) -> None:
    async def is_there(_: str) -> bool:
        return False

    (holding,) = await TopicNames(store, is_there).taking("a.b")
    await store.create(topic_name_path("a_b"), getattr(holding, "value", b""))
    assert (await topics.create(topic("a_b"))).name == "a_b"


async def test_an_id_is_used_for_one_topic(topics: TopicStore) -> None:
    """A creation that arrives a second time, after the topic's end, creates nothing."""
    made = await topics.create(topic())
    assert await topics.create(topic()) == made
    await topics.change(NAME, TopicRecord.with_deletion)
    for is_tombstone in (False, True):
        with pytest.raises(TopicExistsError):
            await topics.create(topic())
        if not is_tombstone:
            await topics.finish_deletion(NAME, made.topic_id)
    assert await topics.topic_ids() == set()
    assert await topics.names() == [NAME]


async def test_ids_of_many_topics_are_read_in_parts(
    topics: TopicStore, faults: ScriptedFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_store, "CHANGES_AT_ONCE_MAX", 2)
    made = [await topics.create(topic(f"t{i}", number=i)) for i in range(5)]
    names = [topic_path(record.name) for record in made]
    reads: Counter[str] = Counter()

    def note(call: StoreCall) -> int:
        reads["" if call.path == TOPICS else call.path] += 1
        return 0

    monkeypatch.setattr(faults, "missed_changes", note)
    assert await topics.topic_ids() == {record.topic_id for record in made}
    assert reads == dict.fromkeys([*names, ""], 1)
    await topics.change("t1", TopicRecord.with_deletion)
    assert len(await topics.topic_ids()) == 5, "its ledgers are not deleted yet"
    await topics.finish_deletion("t1", made[1].topic_id)
    assert await topics.topic_ids() == {record.topic_id for record in made if record.name != "t1"}


async def test_many_changes_are_made_in_parts(
    topics: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{i}" for i in range(5)]
    for name in names:
        await topics.create(topic(name))
    monkeypatch.setattr(topic_store, "CHANGES_AT_ONCE_MAX", 2)
    reads = 0
    most = 0
    real = TopicStore.change

    async def counted(self: TopicStore, name: str, change: TopicChange) -> TopicRecord:
        nonlocal reads, most
        reads += 1
        most = max(most, reads)
        try:
            return await real(self, name, change)
        finally:
            reads -= 1

    monkeypatch.setattr(TopicStore, "change", counted)
    changed = await topics.change_many(dict.fromkeys(names, led_by(7)))
    assert list(changed) == names
    assert most == 2
    assert [await leader_of(topics, name) for name in names] == [7] * 5


async def test_a_failure_of_one_change_is_raised_after_the_others_have_ended(
    topics: TopicStore, faults: ScriptedFaults
) -> None:
    names = ["t0", "t1", "t2"]
    for name in names:
        await topics.create(topic(name))
    faults.acts = ["refused", "late", "late"]
    with pytest.raises(StoreUnavailableError):
        await topics.change_many(dict.fromkeys(names, led_by(7)))
    assert [await leader_of(topics, name) for name in names] == [1, 7, 7]


@pytest.mark.parametrize("is_creation", [True, False])
async def test_a_change_is_repeated_after_growing_pauses(
    topics: TopicStore, faults: ScriptedFaults, *, is_creation: bool
) -> None:
    await topics.create(topic("another"))
    faults.acts = ["dropped"] * RETRIES
    call = topics.create(topic()) if is_creation else topics.change("another", led_by(7))
    assert await taken_s(call) > RETRIES_S_MIN


async def test_a_creation_that_was_refused_after_an_unknown_outcome_goes_on(
    topics: TopicStore, faults: ScriptedFaults
) -> None:
    await topics.create(topic("another"))
    for acts in (["dropped", "refused"], ["lost", "refused", "refused"]):
        faults.acts = list(acts)
        made = await topics.create(topic(f"after-{acts[0]}"))
        assert await topics.get(made.name, fresh=True) == (made, 0)


@pytest.mark.parametrize("is_creation", [True, False])
async def test_attempts_are_limited(
    topics: TopicStore,
    faults: ScriptedFaults,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_creation: bool,
) -> None:
    await topics.create(topic("another"))
    monkeypatch.setattr(topic_store, "ATTEMPTS_MAX", 3)
    monkeypatch.setattr(value_changes, "ATTEMPTS_MAX", 3)
    faults.acts = ["dropped"] * 3
    with pytest.raises(MetadataError, match="3 attempts: try again"):
        await (topics.create(topic()) if is_creation else topics.change("another", led_by(7)))
    assert faults.acts == []


async def test_watches_end(topics: TopicStore) -> None:
    await topics.create(topic())
    calls: list[str] = []
    cancels = [
        topics.watch_names(lambda: calls.append("names")),
        topics.watch(NAME, lambda: calls.append("topic")),
    ]
    await topics.create(topic("another"))
    await topics.change(NAME, led_by(7))
    await asyncio.sleep(1.0)
    assert sorted(calls) == ["names", "topic"]
    for cancel in cancels:
        cancel()
    await topics.create(topic("third"))
    await topics.change(NAME, led_by(8))
    await asyncio.sleep(1.0)
    assert len(calls) == 2
