"""Tests of Java's string hash and of the mapping of keys to partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.coordinator_partitions import java_string_hash, partition_of_key


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("Hello World", -862_545_276),
        ("polygenelubricants", -(2**31)),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", 233),
        ("\N{GRINNING FACE}", 1_772_899),
    ],
)
def test_java_string_hash(text: str, code: int) -> None:
    assert java_string_hash(text) == code


def test_lowest_hash_maps_to_partition_0() -> None:
    assert partition_of_key("polygenelubricants", 50) == 0


def test_positive_hash_maps_by_value() -> None:
    assert partition_of_key("hello", 50) == 99_162_322 % 50


def test_negative_hash_maps_by_absolute_value() -> None:
    assert partition_of_key("Hello World", 50) == 862_545_276 % 50


@given(st.text(), st.integers(1, 1000))
def test_key_maps_to_existing_partition(key: str, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count
