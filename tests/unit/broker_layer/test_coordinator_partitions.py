"""Groups and transactional ids belong to the partitions that Kafka's tools would name."""

import pytest

from broker_layer.coordinator_partitions import coordinator_partition
from broker_layer.java_hash import java_string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partitions_are_within_bounds_and_those_of_kafka() -> None:
    assert coordinator_partition("hello", 50) == 99162322 % 50
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert all(0 <= coordinator_partition(f"group-{n}", 16) < 16 for n in range(200))
