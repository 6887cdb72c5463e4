"""Tests of the assignments of classic members."""

import random
import struct

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker_layer.kafka.messages import ASSIGNMENT_VERSION_MAX, assigned_partitions
from broker_layer.kafka.primitives import ANSWER_ELEMENTS_MAX

PLACES = (("orders", 2), ("orders", 0), ("Grüße", 1))


def encoded(version: int, user_data: bytes | None = b"sticky") -> bytes:
    """Return the assignment of PLACES as a client encodes it."""
    kind = ConsumerProtocolAssignment.TopicPartition
    topics = [kind(topic="orders", partitions=[2, 0]), kind(topic="Grüße", partitions=[1])]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    return bytes(message.encode(version=version))


@pytest.mark.parametrize("version", range(ASSIGNMENT_VERSION_MAX + 1))
def test_partitions_of_every_version(version: int) -> None:
    assert assigned_partitions(encoded(version)) == PLACES
    assert assigned_partitions(encoded(version, None)) == PLACES


def test_known_versions_are_those_of_the_schema() -> None:
    assert ConsumerProtocolAssignment.max_version == ASSIGNMENT_VERSION_MAX


def test_a_newer_version_begins_with_the_known_fields() -> None:
    newer = struct.pack(">h", 9) + encoded(ASSIGNMENT_VERSION_MAX)[2:] + b"a later field"
    assert assigned_partitions(newer) == PLACES


def test_no_assignment() -> None:
    assert assigned_partitions(b"") == ()


def test_bytes_of_another_format_are_none() -> None:
    assert assigned_partitions(struct.pack(">h", -1) + encoded(0)[2:]) is None
    assert assigned_partitions(b'{"connector": 1}') is None
    too_many = struct.pack(">hi", 0, ANSWER_ELEMENTS_MAX + 1)
    assert assigned_partitions(too_many) is None
    name = encoded(0).replace(b"orders", b"\xff" * 6)
    assert assigned_partitions(name) is None


def test_damage_is_none_or_partitions() -> None:
    whole = encoded(0)
    assert all(assigned_partitions(whole[:size]) is None for size in range(1, len(whole)))
    rng = random.Random(1)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        found = assigned_partitions(bytes(damaged))
        assert found is None or all(isinstance(topic, str) for topic, _ in found)
