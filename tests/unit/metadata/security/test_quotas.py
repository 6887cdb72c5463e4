"""Quotas: entities, keys, values, changes and the stored form."""

import contextlib
from collections.abc import Sequence

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.security.errors import InvalidQuotaError
from metadata.security.quotas import (
    NAME_CHARACTERS_MAX,
    QUOTA_CODEC,
    EntityType,
    QuotaEntity,
    QuotaKey,
    QuotaRecord,
    QuotaValues,
    altered,
    check_change,
    entity_of,
    entity_of_node,
    node_name,
)

USER, CLIENT_ID, IP = EntityType
PRODUCED, FETCHED, WORKED, CHANGED, CONNECTED, APPENDED, READ = QuotaKey
ALICE = entity_of([("user", "alice")])
ADDRESS = entity_of([("ip", "10.0.0.1")])
CLIENT = entity_of([("client-id", "c")])
ALICE_AS_CLIENT = entity_of([("user", "alice"), ("client-id", "c")])
EVERYONE = entity_of([("user", None)])

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
addresses = st.none() | st.ip_addresses().map(str)
entities = st.one_of(
    names.map(lambda name: entity_of([("user", name)])),
    names.map(lambda name: entity_of([("client-id", name)])),
    st.tuples(names, names).map(lambda two: entity_of([("client-id", two[1]), ("user", two[0])])),
    addresses.map(lambda name: entity_of([("ip", name)])),
)


def values_of(entity: QuotaEntity, number: int) -> QuotaValues:
    return {CONNECTED: number} if entity.is_address else {PRODUCED: number, WORKED: number / 2}


@given(entities, st.integers(1, 2**31 - 1))
def test_a_quota_is_read_as_it_was_stored(entity: QuotaEntity, number: int) -> None:
    quota = QuotaRecord(entity, values_of(entity, number))
    assert QUOTA_CODEC.unpack("x", QUOTA_CODEC.pack("x", quota), entity=entity) == quota
    assert entity_of_node(node_name(entity)) == entity


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    with contextlib.suppress(MetadataFormatError):
        assert isinstance(QUOTA_CODEC.unpack("x", value, entity=ALICE), QuotaRecord)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"producer_byte_rate": 0.0},
        {"producer_byte_rate": "1"},
        {"connection_creation_rate": 1.0},
        {"of_another_release": 1.0},
    ],
)
def test_wrong_values_are_refused(values: object) -> None:
    with pytest.raises(MetadataFormatError):
        QUOTA_CODEC.unpack("x", msgpack.packb([1, values]), entity=ALICE)


@pytest.mark.parametrize(
    "node", ["", "user=", "group=a", "user=alice,ip=10.0.0.1", "client-id=a,user=b", "user=%41"]
)
def test_another_name_of_a_node_is_refused(node: str) -> None:
    with pytest.raises(MetadataFormatError):
        entity_of_node(node)


@pytest.mark.parametrize(
    ("given_names", "node"),
    [
        ([("user", "alice")], "user=alice"),
        ([("user", None)], "user"),
        ([("client-id", "a,b=c/d"), ("user", "CN=x")], "user=CN%3Dx,client-id=a%2Cb%3Dc%2Fd"),
        ([("client-id", None), ("user", "a")], "user=a,client-id"),
        ([("ip", "0:0::1")], "ip=%3A%3A1"),
        ([("ip", None)], "ip"),
    ],
)
def test_entities_have_nodes(given_names: Sequence[tuple[str, str | None]], node: str) -> None:
    assert node_name(entity_of(given_names)) == node


@given(entities, entities)
def test_different_entities_have_different_nodes(one: QuotaEntity, other: QuotaEntity) -> None:
    assert (node_name(one) == node_name(other)) == (one == other)
    assert "/" not in node_name(one)


@pytest.mark.parametrize(
    ("given_names", "why"),
    [
        ([], "the entity is empty"),
        ([("group", "a")], "'group' is unknown: use one of user, client-id, ip"),
        ([("User", "a")], "'User' is unknown"),
        ([("user", "a"), ("user", "b")], "names its user twice"),
        ([("user", "")], "has 0 characters"),
        ([("client-id", "x" * (NAME_CHARACTERS_MAX + 1))], "has 256 characters"),
        ([("user", "\ud800")], "has no UTF-8 form"),
        ([("user", "a"), ("ip", "10.0.0.1")], "an ip and a user or client-id"),
        ([("client-id", None), ("ip", None)], "an ip and a user or client-id"),
        ([("ip", "example.com")], "is not an IP address"),
        ([("ip", "10.0.0.0/8")], "is not an IP address"),
        ([("ip", "fe80::1%eth0")], "has a zone"),
    ],
)
def test_invalid_entities_are_refused(
    given_names: Sequence[tuple[str, str | None]], why: str
) -> None:
    with pytest.raises(InvalidQuotaError, match=why):
        entity_of(given_names)


@pytest.mark.parametrize(
    ("entity", "key", "value", "why"),
    [
        (ALICE, "producer_byte_rate", 1.0, None),
        (ALICE, "consumer_byte_rate", 2.0**62, None),
        (ALICE, "request_percentage", 0.5, None),
        (ALICE, "controller_mutation_rate", 0.1, None),
        (ADDRESS, "connection_creation_rate", 2.0**31 - 1, None),
        (ALICE, "append_byte_rate", 1.0, None),
        (EVERYONE, "read_byte_rate", 2.0**62, None),
        (CLIENT, "append_byte_rate", 1.0, "is not one of client-id 'c': use one of producer"),
        (ALICE_AS_CLIENT, "read_byte_rate", 1.0, "is not one of user 'alice', client-id 'c'"),
        (ADDRESS, "append_byte_rate", 1.0, "is not one of ip"),
        (ALICE, "append_byte_rate", 1.5, "a whole number"),
        (
            ALICE,
            "consumer_rate",
            1.0,
            "'consumer_rate' is not one of user 'alice': use one of prod",
        ),
        (ALICE, "connection_creation_rate", 1.0, "is not one of user 'alice'"),
        (ADDRESS, "producer_byte_rate", 1.0, "is not one of ip '10.0.0.1': use one of connection_"),
        (ALICE, "producer_byte_rate", 0.0, "greater than 0"),
        (ALICE, "producer_byte_rate", -1.0, "greater than 0"),
        (ALICE, "producer_byte_rate", 1.5, "a whole number"),
        (ALICE, "producer_byte_rate", 2.0**70, "fits its type"),
        (ALICE, "request_percentage", float("nan"), "greater than 0"),
        (ALICE, "request_percentage", float("inf"), "greater than 0"),
        (ADDRESS, "connection_creation_rate", 2.0**31, "fits its type"),
    ],
)
def test_values_are_checked(entity: QuotaEntity, key: str, value: float, why: str | None) -> None:
    if why is None:
        assert check_change(entity, key, value) == key
    else:
        with pytest.raises(InvalidQuotaError, match=why):
            check_change(entity, key, value)


def test_changes_set_and_remove_values() -> None:
    values = altered({}, {PRODUCED: 5.0, FETCHED: None})
    assert values == {PRODUCED: 5.0}
    values = altered(values, {WORKED: 50.0})
    assert values == {PRODUCED: 5.0, WORKED: 50.0}
    assert altered(values, {PRODUCED: None, CHANGED: None}) == {WORKED: 50.0}
    assert altered(values, dict.fromkeys(QuotaKey)) == {}
