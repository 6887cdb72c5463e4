"""Where groups and transactional ids are placed; the hashes are those that Java prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.java_hash import java_string_hash, partition_of_key


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
def test_the_hash_is_javas(text: str, code: int) -> None:
    assert java_string_hash(text) == code


def test_the_lowest_hash_has_no_absolute_value_and_goes_to_partition_0() -> None:
    assert partition_of_key("polygenelubricants", 50) == 0


def test_a_positive_hash_is_placed_by_its_value() -> None:
    assert partition_of_key("hello", 50) == 99_162_322 % 50


def test_a_negative_hash_is_placed_by_its_absolute_value() -> None:
    assert partition_of_key("Hello World", 50) == 862_545_276 % 50


@given(st.text(), st.integers(1, 1000))
def test_a_key_is_placed_within_the_topic(key: str, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count
