"""Bindings of access control lists: checks, filters and bytes."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import pack
from metadata.security.acl_errors import InvalidAclError, TooManyAclsError
from metadata.security.acls import (
    ACL_SHARDS,
    BINDINGS_CODEC,
    BINDINGS_MAX,
    HOST_BYTES_MAX,
    NAME_BYTES_MAX,
    OPERATIONS,
    PRINCIPAL_BYTES_MAX,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    ordered,
)
from metadata.store.interface import VALUE_BYTES_MAX

ORDERS = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
PREFIX = replace(ORDERS, pattern_type=PatternType.PREFIXED, name="ord")
EVERY = replace(ORDERS, name="*")


@pytest.mark.parametrize(
    "binding",
    [
        replace(ORDERS, resource_type=ResourceType.ANY),
        replace(ORDERS, pattern_type=PatternType.MATCH),
        replace(ORDERS, pattern_type=PatternType.ANY),
        replace(ORDERS, operation=Operation.ANY),
        replace(ORDERS, operation=Operation.CLUSTER_ACTION),
        replace(ORDERS, permission=Permission.ANY),
        replace(ORDERS, name=""),
        replace(ORDERS, name="x" * (NAME_BYTES_MAX + 1)),
        replace(ORDERS, name="\ud800"),
        replace(ORDERS, principal="alice"),
        replace(ORDERS, principal="User:"),
        replace(ORDERS, host=""),
        replace(ORDERS, resource_type=ResourceType.CLUSTER, operation=Operation.ALTER),
    ],
    ids=str,
)
def test_invalid_bindings_are_refused(binding: AclBinding) -> None:
    with pytest.raises(InvalidAclError, match="not valid"):
        check_binding(binding)


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (AclFilter(), [True, True, True]),
        (AclFilter(name="orders"), [True, False, False]),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), [True, True, True]),
        (AclFilter(name="ord", pattern_type=PatternType.MATCH), [False, True, True]),
        (AclFilter(name="or", pattern_type=PatternType.MATCH), [False, False, True]),
        (AclFilter(pattern_type=PatternType.MATCH), [True, True, True]),
        (AclFilter(pattern_type=PatternType.PREFIXED), [False, True, False]),
        (AclFilter(name="ord", pattern_type=PatternType.PREFIXED), [False, True, False]),
        (AclFilter(name="ord", pattern_type=PatternType.LITERAL), [False, False, False]),
        (AclFilter(name="*", pattern_type=PatternType.LITERAL), [False, False, True]),
        (AclFilter(resource_type=ResourceType.GROUP), [False, False, False]),
        (AclFilter(principal="User:bob"), [False, False, False]),
        (AclFilter(host="10.0.0.1"), [False, False, False]),
        (AclFilter(operation=Operation.WRITE), [False, False, False]),
        (AclFilter(permission=Permission.DENY), [False, False, False]),
        (AclFilter(operation=Operation.READ, permission=Permission.ALLOW), [True, True, True]),
    ],
    ids=str,
)
def test_filters(wanted: AclFilter, selected: list[bool]) -> None:
    assert [wanted.selects(binding) for binding in (ORDERS, PREFIX, EVERY)] == selected


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KINDS = [operation for operation in OPERATIONS if operation is not ResourceType.CLUSTER]
BINDINGS = st.sampled_from(KINDS).flatmap(
    lambda kind: st.builds(
        AclBinding,
        st.just(kind),
        st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
        TEXTS,
        TEXTS.map(lambda name: f"User:{name}"),
        TEXTS,
        st.sampled_from((Operation.ALL, *OPERATIONS[kind])),
        st.sampled_from((Permission.ALLOW, Permission.DENY)),
    )
)


@given(st.lists(BINDINGS, max_size=5))
def test_bytes(bindings: list[AclBinding]) -> None:
    stored = BINDINGS_CODEC.pack("here", ordered(bindings))
    assert list(BINDINGS_CODEC.unpack("here", stored)) == sorted(set(bindings))
    assert BINDINGS_CODEC.pack("here", ordered(reversed(bindings))) == stored
    assert all(0 <= binding.shard < ACL_SHARDS for binding in bindings)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    with contextlib.suppress(MetadataFormatError):
        for binding in BINDINGS_CODEC.unpack("here", value):
            check_binding(binding)


@pytest.mark.parametrize(
    "row",
    [
        [],
        [2, 3, "a", "User:a", "*", 3],
        [1, 3, "a", "User:a", "*", 3, 3],
        [2, 3, "a", "User:a", "*", 99, 3],
        [2, 3, 7, "User:a", "*", 3, 3],
        "a",
    ],
    ids=str,
)
def test_wrong_rows_are_refused(row: list[int | str]) -> None:
    with pytest.raises(MetadataFormatError):
        BINDINGS_CODEC.unpack("here", pack("here", [1, [row]]))  # type: ignore[list-item]


def test_a_full_shard_fits_in_one_node() -> None:
    def binding(number: int) -> AclBinding:
        return AclBinding(
            ResourceType.TRANSACTIONAL_ID,
            PatternType.PREFIXED,
            "n" * NAME_BYTES_MAX,
            f"User:{number:0{PRINCIPAL_BYTES_MAX - 5}}",
            "h" * HOST_BYTES_MAX,
            Operation.DESCRIBE,
            Permission.ALLOW,
        )

    full = [binding(number) for number in range(BINDINGS_MAX)]
    check_binding(full[0])
    assert len(BINDINGS_CODEC.pack("here", ordered(full))) <= VALUE_BYTES_MAX
    with pytest.raises(TooManyAclsError, match="remove"):
        BINDINGS_CODEC.pack("here", ordered([*full, binding(BINDINGS_MAX)]))
