"""Decisions about access control lists, one rule at a time and against a plain evaluation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.security.authorizer import AclTable, Client, Decision
from metadata.security.acls import (
    ANY_NAME,
    ANY_USER,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

ALICE = "User:alice"
BOB = "User:bob"
HOST = "10.0.0.1"
NO_RULE, DENIED, ALLOWED = Decision.NO_RULE, Decision.DENIED, Decision.ALLOWED


def rule(
    text: str, *, principal: str = ALICE, host: str = ANY_NAME, kind: ResourceType | None = None
) -> AclBinding:
    """Read `allow READ orders`, with `orders*` for a prefix and `*` for all names."""
    permission, operation, name = text.split(" ")
    is_prefix = name.endswith("*") and name != ANY_NAME
    return AclBinding(
        kind or ResourceType.TOPIC,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        name.removesuffix("*") if is_prefix else name,
        principal,
        host,
        Operation[operation],
        Permission[permission.upper()],
    )


@pytest.mark.parametrize(
    ("rules", "operation", "name", "decision"),
    [
        ([], "READ", "orders", NO_RULE),
        (["allow READ orders"], "READ", "orders", ALLOWED),
        (["allow READ orders"], "READ", "orders-2", NO_RULE),
        (["allow READ orders"], "WRITE", "orders", DENIED),
        (["allow READ *"], "READ", "orders", ALLOWED),
        (["allow READ ord*"], "READ", "orders", ALLOWED),
        (["allow READ ord*"], "READ", "ord", ALLOWED),
        (["allow READ ord*"], "READ", "or", NO_RULE),
        (["allow ALL orders"], "ALTER_CONFIGS", "orders", ALLOWED),
        (["allow READ orders", "deny READ orders"], "READ", "orders", DENIED),
        (["allow READ orders", "deny READ ord*"], "READ", "orders", DENIED),
        (["allow READ orders", "deny ALL *"], "READ", "orders", DENIED),
        (["deny READ *", "allow READ orders"], "READ", "orders", DENIED),
        (["allow READ orders"], "DESCRIBE", "orders", ALLOWED),
        (["allow WRITE orders"], "DESCRIBE", "orders", ALLOWED),
        (["allow DELETE orders"], "DESCRIBE", "orders", ALLOWED),
        (["allow ALTER orders"], "DESCRIBE", "orders", ALLOWED),
        (["allow CREATE orders"], "DESCRIBE", "orders", DENIED),
        (["allow ALTER_CONFIGS orders"], "DESCRIBE_CONFIGS", "orders", ALLOWED),
        (["allow ALTER_CONFIGS orders"], "DESCRIBE", "orders", DENIED),
        (["allow ALTER orders"], "DESCRIBE_CONFIGS", "orders", DENIED),
        (["allow DESCRIBE orders"], "READ", "orders", DENIED),
        (["allow DESCRIBE_CONFIGS orders"], "ALTER_CONFIGS", "orders", DENIED),
        (["allow DESCRIBE orders", "deny READ orders"], "DESCRIBE", "orders", ALLOWED),
        (["allow READ orders", "deny DESCRIBE orders"], "READ", "orders", ALLOWED),
        (["allow READ orders", "deny DESCRIBE orders"], "DESCRIBE", "orders", DENIED),
    ],
)
def test_rules(rules: list[str], operation: str, name: str, decision: Decision) -> None:
    table = AclTable(map(rule, rules))
    found = table.decide(Client(ALICE, HOST), Operation[operation], ResourceType.TOPIC, name)
    assert found is decision


def test_other_types_principals_and_hosts() -> None:
    table = AclTable(
        [
            rule("allow READ a"),
            rule("allow READ b", host=HOST),
            rule("allow READ c", principal=ANY_USER),
            rule("deny READ c", principal=BOB),
            rule("allow READ d", kind=ResourceType.GROUP),
        ]
    )

    def of(principal: str, host: str, name: str, kind: ResourceType = ResourceType.TOPIC) -> bool:
        return table.decide(Client(principal, host), Operation.READ, kind, name) is ALLOWED

    assert of(ALICE, "::1", "a")
    assert not of(BOB, "::1", "a")
    assert not of(f"{ALICE}-2", "::1", "a")
    assert not of(ALICE[:-1], "::1", "a")
    assert of(ALICE, HOST, "b")
    assert not of(ALICE, "10.0.0.2", "b")
    assert of("User:ANONYMOUS", HOST, "c")
    assert not of(BOB, HOST, "c")
    assert not of(ALICE, HOST, "d")
    assert of(ALICE, HOST, "d", ResourceType.GROUP)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        (["allow READ a"], False),
        (["allow WRITE a"], True),
        (["allow WRITE *"], True),
        (["allow WRITE a", "deny WRITE *"], False),
        (["allow WRITE a", "deny WRITE a"], False),
        (["allow WRITE ab", "deny WRITE a*"], False),
        (["allow WRITE ab*", "deny WRITE a*"], False),
        (["allow WRITE ab*", "deny WRITE ab"], True),
        (["allow WRITE ab*", "deny WRITE abc*"], True),
        (["allow WRITE *", "deny WRITE a*"], True),
        (["allow WRITE a", "allow WRITE b", "deny WRITE a"], True),
    ],
)
def test_any_resource(rules: list[str], allowed: bool) -> None:
    table = AclTable(map(rule, rules))
    client = Client(ALICE, HOST)
    assert table.allows_any(client, Operation.WRITE, ResourceType.TOPIC) is allowed


NAMES = ("a", "ab", "abc", "b", ANY_NAME)
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP)),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from(NAMES),
    st.sampled_from((ALICE, BOB, ANY_USER)),
    st.sampled_from((HOST, "::1", ANY_NAME)),
    st.sampled_from(tuple(Operation)[1:]),
    st.sampled_from((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
)


def plain(bindings: list[AclBinding], client: Client, operation: Operation, name: str) -> Decision:
    """Decide without any index, as the documentation of Kafka states the rules."""
    about = [
        binding
        for binding in bindings
        if binding.resource_type is ResourceType.TOPIC
        if (
            name.startswith(binding.name)
            if binding.pattern_type is PatternType.PREFIXED
            else binding.name in (name, "*")
        )
    ]
    mine = [
        binding
        for binding in about
        if binding.principal in (client.principal, "User:*") and binding.host in (client.host, "*")
    ]
    denied = [binding.operation for binding in mine if binding.permission is Permission.DENY]
    allowed = [binding.operation for binding in mine if binding.permission is Permission.ALLOW]
    wide = {operation, Operation.ALL}
    if wide & {*denied}:
        return DENIED
    if operation is Operation.DESCRIBE:
        wide |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        wide |= {Operation.ALTER_CONFIGS}
    if wide & {*allowed}:
        return ALLOWED
    return DENIED if about else NO_RULE


@given(
    st.lists(BINDINGS, max_size=8),
    st.sampled_from((ALICE, BOB)),
    st.sampled_from((HOST, "::1")),
    st.sampled_from(tuple(Operation)[2:]),
    st.sampled_from((*NAMES, "abcd")),
)
def test_like_a_plain_evaluation(
    bindings: list[AclBinding], principal: str, host: str, operation: Operation, name: str
) -> None:
    client = Client(principal, host)
    found = AclTable(bindings).decide(client, operation, ResourceType.TOPIC, name)
    assert found is plain(bindings, client, operation, name)
