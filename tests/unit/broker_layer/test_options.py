"""Options of brokers that depend on each other: those of the authorizer."""

import pytest

from broker_layer.options import BROKER
from broker_layer.security.authorizer import AuthorizerConfig
from quire.options import OptionError, Value

MAP = "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT"
TWO = "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2"
BOTH: dict[str, Value] = {"listeners": TWO, "listener_security_protocol_map": MAP}


def config(**flags: Value) -> AuthorizerConfig | None:
    return BROKER.load(None, {}, flags).authorizer_config


def test_there_is_no_authorizer_by_default() -> None:
    assert config() is None


def test_super_users() -> None:
    found = config(authorizer=True, super_users="User:a; User:CN=b,O=c;")
    assert found == AuthorizerConfig(super_users=frozenset({"User:a", "User:CN=b,O=c"}))


@pytest.mark.parametrize(
    ("flags", "listener"),
    [
        ({}, None),
        (BOTH, None),
        (
            {
                "listeners": TWO,
                "listener_security_protocol_map": MAP,
                "inter_broker_listener": "BROKERS",
            },
            "BROKERS",
        ),
        (
            {
                "listeners": TWO,
                "listener_security_protocol_map": MAP,
                "inter_broker_listener": "CLIENTS",
            },
            "CLIENTS",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1", "inter_broker_listener": "PLAINTEXT"},
            None,
        ),
        (
            {
                "listeners": TWO,
                "listener_security_protocol_map": "BROKERS:SASL_PLAINTEXT,CLIENTS:PLAINTEXT",
                "inter_broker_listener": "BROKERS",
                "super_users": "User:broker",
            },
            None,
        ),
    ],
)
def test_only_a_listener_of_their_own_is_for_brokers(
    flags: dict[str, Value], listener: str | None
) -> None:
    found = config(authorizer=True, **flags)
    assert found is not None
    assert found.broker_listener == listener


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"super_users": "User:a"}, "super_users has no effect.*set authorizer = true"),
        ({"allow_everyone_if_no_acl_found": True}, "has no effect.*set authorizer = true"),
        ({"authorizer": True, "super_users": "a"}, "super_users: 'a' is not a principal"),
        ({"authorizer": True, "super_users": "User:*"}, "name each user"),
        (
            {"authorizer": True, "listeners": "SASL_PLAINTEXT://127.0.0.1:1"},
            "listener SASL_PLAINTEXT.*add their principal to super_users",
        ),
    ],
)
def test_wrong_combinations_are_refused(flags: dict[str, Value], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        config(**flags)
