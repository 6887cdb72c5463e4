"""Security protocols of listeners, and the options of a broker that must fit them."""

import pytest

from broker_layer.options import BROKER, BrokerOptions
from broker_layer.security.login_options import SecurityProtocol, protocols_of
from quire.options import OptionError, Value
from quire.server.server_options import TlsMode

FILES = {"tls_cert_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}
OPEN = "10.1.2.3"


@pytest.mark.parametrize(
    ("protocol", "uses_tls", "uses_logins"),
    [
        (SecurityProtocol.PLAINTEXT, False, False),
        (SecurityProtocol.SSL, True, False),
        (SecurityProtocol.SASL_PLAINTEXT, False, True),
        (SecurityProtocol.SASL_SSL, True, True),
    ],
)
def test_what_a_protocol_uses(
    protocol: SecurityProtocol, *, uses_tls: bool, uses_logins: bool
) -> None:
    assert (protocol.uses_tls, protocol.uses_logins) == (uses_tls, uses_logins)


def test_a_listener_has_the_protocol_that_is_given_or_that_is_its_name() -> None:
    found = protocols_of(["SSL", "OUTER", "PLAINTEXT"], " OUTER : SASL_SSL,PLAINTEXT:SSL")
    assert found == {
        "SSL": SecurityProtocol.SSL,
        "OUTER": SecurityProtocol.SASL_SSL,
        "PLAINTEXT": SecurityProtocol.SSL,
    }


@pytest.mark.parametrize(
    ("names", "text", "why"),
    [
        (["OUTER"], "", "OUTER has no protocol: write OUTER:PROTOCOL"),
        (["ssl"], "", "ssl has no protocol"),
        (["SSL"], "INNER:SSL", "INNER is not a listener"),
        (["SSL"], "SSL:TLS", "'SSL:TLS' is not NAME:PROTOCOL"),
        (["SSL"], "SSL", "'SSL' is not NAME:PROTOCOL"),
        (["SSL"], ":SSL", "':SSL' is not NAME:PROTOCOL"),
        (["SSL"], "SSL:SSL,SSL:SASL_SSL", "SSL is given twice"),
        (["SSL"], "SSL:SSL,", "'' is not NAME:PROTOCOL"),
    ],
)
def test_other_protocols_are_refused(names: list[str], text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        protocols_of(names, text)


@pytest.mark.parametrize(
    ("listeners", "mode"),
    [
        ("PLAINTEXT://127.0.0.1:0", TlsMode.OFF),
        ("SASL_PLAINTEXT://127.0.0.1:0", TlsMode.OFF),
        ("SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", TlsMode.OPTIONAL),
        ("SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0", TlsMode.REQUIRED),
    ],
)
def test_the_listeners_decide_whether_a_broker_uses_tls(listeners: str, mode: TlsMode) -> None:
    assert BrokerOptions(listeners=listeners).tls_mode is mode


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"listeners": "OUTER://127.0.0.1:0"},
            "listener_security_protocol_map: the listener OUTER",
        ),
        ({"listeners": "SSL://127.0.0.1:0"}, "tls_cert_file is not set"),
        (
            {"listeners": "SSL://127.0.0.1:0", **FILES, "tls_ca_file": ""},
            "tls_ca_file is not set: name a PEM file, or set tls_client_certificates to none",
        ),
        ({"listeners": f"PLAINTEXT://{OPEN}:1"}, f"PLAINTEXT is at {OPEN}.*allow_plaintext"),
        ({"listeners": f"SASL_PLAINTEXT://{OPEN}:1"}, "without TLS.*SASL_SSL or SSL"),
        ({"listeners": "SSL://0.0.0.0:1", **FILES}, "set advertised_listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1", "allow_plaintext": True}, "all addresses"),
        (
            {
                "listeners": "SSL://h:1",
                "advertised_listeners": "SSL://[::]:1",
                **FILES,
            },
            "set advertised_listeners",
        ),
        ({"admin_host": OPEN}, "every listener the protocol SSL or SASL_SSL"),
        (
            {"admin_host": OPEN, "allow_plaintext": True},
            "admin_host is 10.1.2.3.*set admin_token_file",
        ),
    ],
)
def test_a_broker_that_would_be_open_does_not_start(given: dict[str, Value], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        BROKER.load(None, {}, given)


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": f"PLAINTEXT://{OPEN}:1", "allow_plaintext": True},
        {"listeners": f"SSL://{OPEN}:1", "admin_host": OPEN, **FILES},
        {
            "listeners": "SSL://0.0.0.0:1",
            "advertised_listeners": "SSL://broker.example:1",
            **FILES,
        },
    ],
)
def test_a_broker_with_tls_or_a_word_is_open_to_other_machines(given: dict[str, Value]) -> None:
    BROKER.load(None, {}, given)
