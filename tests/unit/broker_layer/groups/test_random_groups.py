"""Random histories of groups keep the invariants at each step."""

from random import Random

import pytest

from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.offset_table import NO_EXPIRY, CommittedOffset, PlacedOffset
from broker_layer.groups.records import (
    GroupRecord,
    OffsetsCommitted,
    OffsetsPending,
    OffsetsRemoved,
    TransactionEnded,
    decode,
    encode,
)
from broker_layer.groups.shard import GroupShard
from broker_layer.groups.values import GroupsConfig, GroupState, Waiter
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import Driver
from tests.support.broker_layer.consumer_driver import Client, ConsumerDriver
from tests.support.broker_layer.group_world import MemoryTopics

SEEDS = range(40)
STEPS = 120


class _ClassicHistory:
    """Random events of a few members, and the state that each of them knows."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=100))
        self.driver.is_storing = bool(seed % 2)
        self.joining: dict[Waiter, str | None] = {}
        self.known: dict[str, tuple[int, str | None]] = {}
        """Member id -> (generation, instance)."""
        self.generation = 0

    def step(self) -> None:
        driver, rng = self.driver, self.rng
        member = rng.choice([*self.known, ""])
        instance = self.known[member][1] if member else rng.choice([None, None, "i", "j"])
        match rng.randrange(8):
            case 0 | 1:
                protocols = (("range", rng.choice([b"", b"", b"x"])),)
                waiter = driver.join(
                    member, instance=instance, protocols=protocols, can_skip=rng.random() < 0.5
                )
                self.joining[waiter] = instance
            case 2 | 3 if member:
                given = {each: each.encode() for each in driver.group.roster.members}
                driver.sync(
                    member,
                    generation=self.known[member][0],
                    instance=instance,
                    assignments=given,
                )
            case 4 if member and rng.random() < 0.3:
                driver.leave((member, instance))
            case 5:
                driver.store()
            case 6:
                driver.advance(rng.choice([50, 200, 3_000]))
            case _:
                for each, (generation, name) in self.known.items():
                    driver.beat(each, generation=generation, instance=name)
        self._learn()
        self._check()

    def _learn(self) -> None:
        for waiter, instance in list(self.joining.items()):
            result = self.driver.joins.get(waiter)
            if result is not None:
                del self.joining[waiter]
                if result.error is ErrorCode.NONE:
                    self.known[result.member_id] = (result.generation, instance)

    def _check(self) -> None:
        group = self.driver.group
        members = group.roster.members
        assert group.generation >= self.generation, "generations only grow"
        self.generation = group.generation
        assert (group.roster.leader_id in members) == bool(members), "one leader, a member"
        assert (group.state is GroupState.EMPTY) <= (not members)
        instances = [member.instance_id for member in members.values() if member.instance_id]
        assert len(instances) == len(set(instances)), "one member for an instance"
        if group.state is GroupState.STABLE:
            assert group.protocol_name in group.roster.common_protocols()
            stored = self.driver.images[-1]
            assert stored.generation == group.generation, "stored before it is stable"
            assert all(member.assignment in (b"", *self._ids()) for member in members.values())
        waiting = [
            member.join_waiter for member in members.values() if member.join_waiter is not None
        ]
        assert sorted(waiting) == sorted(self.joining), "what is not answered is parked"

    def _ids(self) -> list[bytes]:
        return [member.assignment for member in self.driver.images[-1].members]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_classic_group_keeps_its_invariants(seed: int) -> None:
    history = _ClassicHistory(seed)
    for _ in range(STEPS):
        history.step()
    image = history.driver.group._image()
    assert decode(encode(image)) == image
    again = ClassicGroup.from_image(image, history.driver.config, 0)
    assert again._image() == image or not image.members


@pytest.mark.parametrize("seed", SEEDS)
def test_static_members_return_within_their_generation(seed: int) -> None:
    rng = Random(seed)
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=0))
    driver.stable(rng.randrange(1, 6), instances="i")
    count = len(driver.group.roster.members)
    for _ in range(20):
        number = rng.randrange(count)
        waiter = driver.join(instance=f"i{number}", can_skip=rng.random() < 0.5)
        answer = driver.joins[waiter]
        assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)
        assert driver.state() is GroupState.STABLE
        assignment = driver.syncs[driver.sync(answer.member_id, instance=f"i{number}")].assignment
        assert assignment, "it has what its old self had"
        assert len(driver.group.roster.members) == count


class _ConsumerHistory:
    """Clients that join, leave, revoke late, lose answers, and read changing topics."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.driver = ConsumerDriver({"orders": 5, "other": 3, "more": 2})
        self.clients: list[Client] = []
        self.count = 0
        self.epoch = 0

    def step(self) -> None:
        rng, driver = self.rng, self.driver
        choice = rng.randrange(10)
        if not self.clients or (choice == 0 and len(self.clients) < 6):
            self.count += 1
            instance = f"i{self.count}" if rng.random() < 0.3 else None
            topics = tuple(rng.sample(["orders", "other", "more"], rng.randrange(1, 4)))
            self.clients.append(Client(f"c{self.count}", instance, topics=topics))
            driver.send(self.clients[-1])
        elif choice == 1:
            leaver = self.clients.pop(rng.randrange(len(self.clients)))
            driver.send(leaver, epoch=-1)
        elif choice == 2:
            driver.topics.put("orders", rng.randrange(1, 9))
        elif choice == 3:
            driver.advance(rng.choice([100, 5_000, 20_000]))
        else:
            self._beat(rng.choice(self.clients))
        self._check()

    def _beat(self, client: Client) -> None:
        result = self.driver.send(client)
        if result.error is not ErrorCode.NONE:  # fenced: it drops everything and joins again
            client.epoch, client.owned, client.wanted = 0, (), ()
        elif self.rng.random() < 0.7:
            self.driver.obey(client)

    def _check(self) -> None:
        group = self.driver.group
        assert group.epoch >= max(self.epoch, group.assignment_epoch)
        self.epoch = group.epoch
        owned = [
            p for member in group.members.values() for p in (*member.assigned, *member.revoking)
        ]
        assert len(owned) == len(set(owned)), "one owner, including revoking members"
        targets = [p for member in group.members.values() for p in member.target]
        assert len(targets) == len(set(targets)), "one target"
        live = [client for client in self.clients if client.member_id in group.members]
        read = [p for client in live if client.epoch > 0 for p in client.owned]
        assert len(read) == len(set(read)), "no two members that are in read one partition"

    def settle(self) -> None:
        for _ in range(25):
            for client in self.clients:
                if self.driver.send(client).error is not ErrorCode.NONE:
                    client.epoch, client.owned, client.wanted = 0, (), ()
                else:
                    self.driver.obey(client)
            self._check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_group_keeps_its_invariants_and_settles(seed: int) -> None:
    history = _ConsumerHistory(seed)
    for _ in range(STEPS):
        history.step()
    history.settle()
    group = history.driver.group
    assert group.state in ("Stable", "Empty")
    for client in history.clients:
        assert client.owned == group.members[client.member_id].target
    read = [p for each in history.clients for p in each.owned]
    counts = {name: history.driver.topics.partition_count(name) for name in group.subscription()}
    assert len(read) == sum(counts.values()), "everything is read"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_group_is_loaded_from_a_snapshot_as_it_was_stored(seed: int) -> None:
    history = _ConsumerHistory(seed)
    driver = history.driver
    shard = GroupShard(driver.config, driver.topics)
    shard.consumers["g"] = driver.group
    for _ in range(STEPS // 2):
        history.step()
        for record in driver.group.changed_records():
            shard.apply(record)
    loaded = GroupShard(driver.config, driver.topics)
    for data in shard.snapshot():
        loaded.load(data)
    loaded.finish_load(driver.now_ms)
    group = loaded.consumers["g"]
    assert group.members == driver.group.members
    assert (group.image(), group.state) == (driver.group.image(), driver.group.state)
    driver.group = group
    history.settle()
    assert all(client.owned == group.members[client.member_id].target for client in history.clients)


def _random_records(rng: Random, shard: GroupShard) -> list[GroupRecord]:
    """Return the records that one random request, marker or expiry appends."""
    order = shard.offsets.next_order()
    place = (rng.choice(["orders", "other"]), rng.randrange(3))
    group, producer = rng.choice(["g", "h"]), rng.randrange(2)
    committed = CommittedOffset(rng.randrange(1000), 0, "", 0, NO_EXPIRY, b"", order)
    match rng.randrange(6):
        case 0 | 1:
            return [OffsetsCommitted(group, (PlacedOffset(*place, committed),))]
        case 2 | 3:
            return [OffsetsPending(group, producer, 0, (PlacedOffset(*place, committed),))]
        case 4:
            pending = shard.offsets.pending_of(producer) if rng.random() < 0.6 else []
            ended = TransactionEnded(producer, 0, 0, 0, order)
            return [*(OffsetsCommitted(name, placed) for name, placed in pending), ended]
        case _:
            return [OffsetsRemoved(group, (place,))]


def _shown(shard: GroupShard) -> dict[tuple[str, str, int], tuple[int, bool]]:
    return {
        (group_id, offset.topic, offset.partition): (
            offset.committed.offset,
            offsets.is_pending((offset.topic, offset.partition)),
        )
        for group_id, offsets in shard.offsets.groups.items()
        for offset in offsets.all()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_committed_offsets_are_never_lost(seed: int) -> None:
    """A shard that is loaded from a snapshot and repeated records after it is the same."""
    rng = Random(seed)
    topics, config = MemoryTopics({}), GroupsConfig()
    shard = GroupShard(config, topics)
    records: list[bytes] = []
    model: dict[tuple[str, str, int], CommittedOffset] = {}
    for _ in range(80):
        for record in _random_records(rng, shard):
            records.append(encode(record))
            shard.apply(record)
            match record:
                case OffsetsCommitted(group_id, offsets):
                    for topic, partition, committed in offsets:
                        key = (group_id, topic, partition)
                        if key not in model or model[key].order < committed.order:
                            model[key] = committed
                case OffsetsRemoved(group_id, ((topic, partition),)):
                    model.pop((group_id, topic, partition), None)
                case _:
                    continue
        expected = {key: committed.offset for key, committed in model.items()}
        assert {key: offset for key, (offset, _) in _shown(shard).items()} == expected
        repeated = records[len(records) - rng.randrange(min(len(records), 20)) :]
        for source in (records, [*shard.snapshot(), *repeated]):
            loaded = GroupShard(config, topics)
            for data in source:
                loaded.load(data)
            assert _shown(loaded) == _shown(shard)
