"""Authorizer: super users, the default, unreadable lists, the cache and the audit log."""

import logging
from dataclasses import replace

import pytest

from broker_layer.kafka.versions import ApiKey
from broker_layer.security.authorizer import DECISIONS_MAX, Authorizer, AuthorizerConfig, Rights
from metadata.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from quire.identity.principal import ANONYMOUS, Principal
from quire.server.server_log import AUDIT_LOGGER, AuditLog
from tests.support.broker_layer.memory_acls import MemoryAcls

ALICE, BOB = Principal("alice"), Principal("bob")
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, DESCRIBE, WRITE = Operation.READ, Operation.DESCRIBE, Operation.WRITE


def allow(name: str, operation: Operation = READ, kind: ResourceType = TOPIC) -> AclBinding:
    literal = PatternType.LITERAL
    return AclBinding(kind, literal, name, ALICE.text, "*", operation, Permission.ALLOW)


@pytest.fixture
def lists() -> MemoryAcls:
    return MemoryAcls()


def rights(
    lists: MemoryAcls,
    principal: Principal = ALICE,
    *,
    config: AuthorizerConfig | None = None,
    listener: str = "CLIENTS",
) -> Rights:
    authorizer = Authorizer(lists, config or AuthorizerConfig(), AuditLog(lambda: 0.0))
    return authorizer.rights_of(principal, "127.0.0.1", listener, ApiKey.FETCH)


def test_decisions_end_when_the_lists_change(lists: MemoryAcls) -> None:
    mine = rights(lists)
    assert not mine.may(READ, TOPIC, "a")
    lists.change(allow("a"))
    assert mine.may(READ, TOPIC, "a")
    assert mine.may_any(READ, TOPIC)
    lists.change()
    assert not mine.may(READ, TOPIC, "a")
    assert not mine.may_any(READ, TOPIC)


def test_decisions_about_one_client_are_not_those_about_another(lists: MemoryAcls) -> None:
    here = replace(allow("a"), host="127.0.0.1")
    lists.change(here, replace(here, operation=WRITE))
    authorizer = Authorizer(lists, AuthorizerConfig(), AuditLog(lambda: 0.0))
    clients = [(ALICE, "127.0.0.1"), (ALICE, "127.0.0.2"), (BOB, "127.0.0.1")]
    for _ in range(2):  # the second time from the cache
        rights = [authorizer.rights_of(*client, "CLIENTS", ApiKey.FETCH) for client in clients]
        assert [right.may(READ, TOPIC, "a") for right in rights] == [True, False, False]
        assert [right.may_any(WRITE, TOPIC) for right in rights] == [True, False, False]


def test_lists_are_arranged_once_for_each_change(lists: MemoryAcls) -> None:
    lists.rows = [allow("a")]
    mine = rights(lists)
    for number in range(DECISIONS_MAX + 10):
        mine.may(READ, TOPIC, f"t{number}")
    assert mine.may(READ, TOPIC, "a")
    assert lists.reads == 1


def test_a_name_is_not_taken_for_any_name(lists: MemoryAcls) -> None:
    lists.rows = [allow("a")]
    mine = rights(lists)
    assert mine.may_any(READ, TOPIC)
    assert not mine.may(READ, TOPIC, "")


def test_super_users_need_no_rule_and_no_readable_lists(lists: MemoryAcls) -> None:
    config = AuthorizerConfig(super_users=frozenset({ALICE.text}))
    lists.is_readable = False
    assert rights(lists, config=config).may(READ, TOPIC, "a")
    assert rights(lists, config=config).may_any(READ, TOPIC)
    assert not rights(lists, BOB, config=config).may(READ, TOPIC, "a")


def test_unreadable_lists_allow_nothing(lists: MemoryAcls) -> None:
    lists.change(allow("a"))
    lists.is_readable = False
    config = AuthorizerConfig(allow_everyone_if_no_acl_found=True)
    mine = rights(lists, config=config)
    assert not mine.may(READ, TOPIC, "a")
    assert not mine.may(READ, TOPIC, "b")
    assert not mine.may_any(READ, TOPIC)


def test_the_default_is_for_resources_without_a_rule(lists: MemoryAcls) -> None:
    lists.change(allow("a"))
    config = AuthorizerConfig(allow_everyone_if_no_acl_found=True)
    theirs = rights(lists, BOB, config=config)
    assert theirs.may(READ, TOPIC, "b")
    assert not theirs.may(READ, TOPIC, "a")
    assert theirs.may_any(WRITE, TOPIC)


def test_the_listener_of_brokers_has_the_rights_of_brokers_only(lists: MemoryAcls) -> None:
    config = AuthorizerConfig(broker_listener="BROKERS")
    peer = rights(lists, ANONYMOUS, config=config, listener="BROKERS")
    assert peer.may(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    assert peer.may(DESCRIBE, TOPIC, "a")
    assert not peer.may(READ, TOPIC, "a")
    assert not peer.may(Operation.ALTER, CLUSTER, CLUSTER_NAME)
    client = rights(lists, ANONYMOUS, config=config)
    assert not client.may(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)


def test_refusals_are_in_the_audit_log(lists: MemoryAcls, caplog: pytest.LogCaptureFixture) -> None:
    mine = rights(lists, BOB)
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        assert not mine.may(READ, TOPIC, "a")
        assert not caplog.records
        assert not mine.check(READ, TOPIC, "a")
    (record,) = caplog.records
    assert vars(record)["fields"] == {
        "act": "Fetch",
        "result": "refused",
        "who": "User:bob",
        "peer": "127.0.0.1",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "a",
    }
