"""Options of all servers: what fits together, and what is refused because it is open."""

import re

import pytest

from bookie.options import BOOKIE, BookieOptions
from quire.addresses import is_loopback, is_wildcard
from quire.identity.tls import ClientCertificates
from quire.options import OptionError, Value
from quire.server.server_options import SecurityOptions, TlsMode, port_clashes, unreachable

FILES = {"tls_cert_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}


def secure(mode: TlsMode = TlsMode.REQUIRED, **others: str) -> SecurityOptions:
    return SecurityOptions(tls=mode, **{**FILES, **others})  # type: ignore[arg-type]


def test_the_defaults_fit_and_are_without_tls() -> None:
    options = SecurityOptions()
    assert not list(options.contradictions())
    assert options.tls_mode is TlsMode.OFF
    assert options.server_tls() is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SecurityOptions(tls_refused_file="refused"), "tls_refused_file"),
        (secure(tls_cert_file=""), "tls_cert_file is not set"),
        (secure(TlsMode.OPTIONAL, tls_key_file=""), "tls_key_file is not set"),
        (secure(tls_ca_file=""), "tls_ca_file is not set"),
    ],
)
def test_options_that_do_not_fit(options: SecurityOptions, why: str) -> None:
    (text,) = options.contradictions()
    assert why in text


def test_authorities_are_not_needed_without_certificates_of_clients() -> None:
    options = secure(tls_ca_file="", tls_client_certificates=ClientCertificates.NONE)
    assert not list(options.contradictions())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.5.1", "::1", "localhost"])
def test_a_loopback_address_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    assert not list(SecurityOptions().open_listening("host", host))
    assert not list(SecurityOptions().open_admin(host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "localhost.example", ""])
def test_another_address_needs_tls_or_a_word(host: str) -> None:
    assert not is_loopback(host)
    for refused in (SecurityOptions(), secure(TlsMode.OPTIONAL)):
        (text,) = refused.open_listening("host", host)
        assert re.search(r"host is .*allow_plaintext", text)
    for taken in (secure(), SecurityOptions(allow_plaintext=True)):
        assert not list(taken.open_listening("host", host))


def test_an_admin_port_for_other_machines_needs_a_proof() -> None:
    host = "10.1.2.3"
    none = ClientCertificates.NONE
    for taken in (
        secure(),
        SecurityOptions(allow_plaintext=True, admin_token_file="t"),
        secure(tls_client_certificates=none, admin_token_file="t"),
    ):
        assert not list(taken.open_admin(host))
    for refused in (
        SecurityOptions(allow_plaintext=True),
        secure(tls_client_certificates=none),
        SecurityOptions(admin_token_file="t"),
    ):
        assert any("admin_host is" in text for text in refused.open_admin(host))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"host": "10.1.2.3"}, "host is 10.1.2.3"),
        ({"admin_host": "10.1.2.3"}, "admin_host is 10.1.2.3"),
        ({"host": "0.0.0.0", "allow_plaintext": True}, "set advertised_host"),
        ({"tls": "on"}, "--tls must be one of off, optional, required, not 'on'"),
        ({"tls_client_certificates": "yes"}, "--tls-client-certificates must be one of"),
        ({"tls_principal_rules": "RULE:"}, "tls_principal_rules: 'RULE:' is no rule"),
        ({"log_level": "loud"}, "--log-level must be one of debug, info"),
    ],
)
def test_a_bookie_does_not_start_with_them(options: dict[str, Value], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        BOOKIE.load(None, {}, {"data_dir": "d", **options})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_no_client_is_sent_to_all_addresses(host: str) -> None:
    assert is_wildcard(host)
    for addresses in (("", host), (host or "0.0.0.0", "10.1.2.3")):
        (text,) = unreachable("advertised_host", *addresses)
        assert "set advertised_host" in text
    assert not list(unreachable("advertised_host", "node-1", host))


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("0.0.0.0", "10.1.2.3", True),
        ("10.1.2.3", "::", True),
        ("10.1.2.3", "10.1.2.4", False),
    ],
)
def test_two_listeners_cannot_have_one_port(first: str, second: str, *, is_same: bool) -> None:
    options = BookieOptions(
        host=first, admin_host=second, port=7, admin_port=7, allow_plaintext=True
    )
    texts = [
        contradiction for contradiction in options.contradictions() if "is that of" in contradiction
    ]
    assert texts == (["admin_port is that of port: 7"] if is_same else [])


def test_ports_that_the_kernel_chooses_are_different() -> None:
    assert not list(port_clashes(("", address) for address in BookieOptions().addresses()))
