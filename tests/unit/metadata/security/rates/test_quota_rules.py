"""Precedence of quotas, and the clients that share a rate."""

from collections.abc import Sequence

import pytest

from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of
from metadata.security.rates.quota_rules import Limit, find_address_limit, find_limit

KEY, OTHER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
RATE = QuotaKey.CONNECTION_CREATION_RATE
Names = Sequence[tuple[str, str | None]]
LEVELS: list[tuple[Names, tuple[str | None, str | None]]] = [
    ([("user", "u"), ("client-id", "c")], ("u", "c")),
    ([("user", "u"), ("client-id", None)], ("u", "c")),
    ([("user", "u")], ("u", None)),
    ([("user", None), ("client-id", "c")], ("u", "c")),
    ([("user", None), ("client-id", None)], ("u", "c")),
    ([("user", None)], ("u", None)),
    ([("client-id", "c")], (None, "c")),
    ([("client-id", None)], (None, "c")),
]
"""Entities from the highest precedence on, and the clients that share the rate (KIP-55)."""


def quotas_of(*names: Names, key: QuotaKey = KEY) -> QuotaSet:
    quotas = QuotaSet()
    for number, sequence in enumerate(names):
        quotas.put(entity_of(sequence), {key: float(number + 1)})
    return quotas


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_each_level_holds_over_those_below(level: int) -> None:
    quotas = quotas_of(*[names for names, _ in LEVELS[level:]])
    assert find_limit(quotas, KEY, "u", "c") == Limit(1.0, LEVELS[level][1])


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_each_level_holds_alone(level: int) -> None:
    names, bucket = LEVELS[level]
    quotas = quotas_of(names)
    assert find_limit(quotas, KEY, "u", "c") == Limit(1.0, bucket)
    assert find_limit(quotas, OTHER, "u", "c") is None


def test_others_have_no_quota_of_a_name_and_their_own_rate_of_a_default() -> None:
    for names, _ in LEVELS:
        found = find_limit(quotas_of(names), KEY, "v", "d")
        if any(name is not None for _, name in names):
            assert found is None
        else:
            assert found is not None
            assert set(found.bucket) <= {"v", "d", None}


def test_a_level_without_the_key_is_passed_over() -> None:
    quotas = quotas_of(LEVELS[0][0], key=OTHER)
    quotas.put(entity_of(LEVELS[7][0]), {KEY: 8.0})
    assert find_limit(quotas, KEY, "u", "c") == Limit(8.0, (None, "c"))
    assert find_limit(quotas, KEY, "u", "") == Limit(8.0, (None, ""))


def test_addresses() -> None:
    quotas = quotas_of([("ip", "10.0.0.1")], [("ip", None)], key=RATE)
    assert find_address_limit(quotas, RATE, "10.0.0.1") == 1.0
    assert find_address_limit(quotas, RATE, "10.0.0.2") == 2.0
    quotas.remove(entity_of([("ip", None)]))
    assert find_address_limit(quotas, RATE, "10.0.0.2") is None
