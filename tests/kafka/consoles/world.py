"""Topics, records, groups and rights that a cluster has before the consoles' calls.

Leaves the calls to `go_program` and java/ConsoleCalls.java.

Invariant: members of groups stay in them until the context ends.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.confluent_calls import consumer, new_topic, produce
from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import TIMEOUT_S, check, fresh

PARTITIONS: Final = 3
VALUE_BYTES: Final = 2_000
RECORDS: Final = {0: 60, 1: 30, 2: 0}
"""Records of each partition of the topic."""
DELETED: Final = 5
"""Records before this offset are deleted from partition 0."""
COMMITTED: Final = {"classic": {0: 40, 1: 30}, "consumer": {0: 20, 1: 10}}
"""Committed offsets of the group of each protocol."""


@dataclass(frozen=True, slots=True)
class World:
    """Names of what was made."""

    topic: str
    groups: dict[str, str]
    """Name of the group of each protocol; each has one member, with all partitions."""
    new_topic: str = field(default_factory=lambda: fresh("new"))
    idle: str = field(default_factory=lambda: fresh("idle"))
    user: str = field(default_factory=lambda: fresh("user"))
    password: str = field(default_factory=lambda: fresh("password"), repr=False)

    @property
    def names(self) -> dict[str, object]:
        """Names in the form that the programs read."""
        return {
            "topic": self.topic,
            "groups": list(self.groups.values()),
            "idle": self.idle,
            "user": self.user,
            "newTopic": self.new_topic,
            "password": self.password,
        }

    @property
    def places(self) -> list[str]:
        """Partitions of the topic as the programs print them."""
        return [f"{self.topic}-{partition}" for partition in range(PARTITIONS)]

    def lags(self, protocol: str) -> dict[str, int]:
        """Return the true lag of each partition in which a group has committed."""
        committed = COMMITTED[protocol].items()
        return {f"{self.topic}-{each}": RECORDS[each] - offset for each, offset in committed}


@contextmanager
def made_world(endpoint: Endpoint) -> Iterator[World]:
    """Make everything; yield its names while the groups have their members."""
    world = World(new_topic(endpoint, PARTITIONS), {each: fresh(each) for each in COMMITTED})
    for partition, count in RECORDS.items():
        values = [bytes(VALUE_BYTES)] * count
        produce(endpoint, world.topic, values, partition=partition)
    admin = AdminClient(endpoint.librdkafka)
    start = TopicPartition(world.topic, 0, DELETED)
    admin.delete_records([start])[start].result(TIMEOUT_S)
    with ExitStack() as stack:
        for protocol, offsets in COMMITTED.items():
            group = world.groups[protocol]
            member = stack.enter_context(consumer(endpoint, group, group_protocol=protocol))
            member.subscribe([world.topic])
            _wait_for_partitions(member)
            places = [TopicPartition(world.topic, *offset) for offset in offsets.items()]
            member.commit(offsets=places, asynchronous=False)
        yield world


def _wait_for_partitions(member: Consumer) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while len(member.assignment()) != PARTITIONS:
        check(time.monotonic() < end_s, "the member has no partitions")
        member.poll(0.1)
