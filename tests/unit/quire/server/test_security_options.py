"""Options of security: what fits together, and what is refused because it is open."""

import pytest

from bookie.options import load_options
from quire.identity.server_tls import ClientCertificates
from quire.server.errors import OptionError
from quire.server.option_reading import Value
from quire.server.security_options import (
    SecurityOptions,
    TlsMode,
    check_advertised,
    is_loopback,
    is_wildcard,
)

FILES = {"tls_cert_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}


def secure(mode: str = "required", **others: str) -> SecurityOptions:
    return SecurityOptions(tls=mode, **{**FILES, **others})  # type: ignore[arg-type]


def test_the_defaults_fit_and_are_without_tls() -> None:
    options = SecurityOptions()
    options.check_tls()
    assert options.tls_mode is TlsMode.OFF
    assert options.server_tls() is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SecurityOptions(tls="on"), "tls must be one of off, optional, required"),
        (SecurityOptions(tls_client_certificates="yes"), "tls_client_certificates must be one of"),
        (SecurityOptions(tls_principal_rules="RULE:"), "tls_principal_rules"),
        (SecurityOptions(tls_refused_file="refused"), "tls_refused_file"),
        (secure(tls_cert_file=""), "tls_cert_file is not set"),
        (secure("optional", tls_key_file=""), "tls_key_file is not set"),
        (secure(tls_ca_file=""), "tls_ca_file is not set"),
    ],
)
def test_options_that_do_not_fit(options: SecurityOptions, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        options.check_tls()


def test_authorities_are_not_needed_without_certificates_of_clients() -> None:
    secure(tls_ca_file="", tls_client_certificates="none").check_tls()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.5.1", "::1", "localhost"])
def test_a_loopback_address_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    SecurityOptions().check_listening("host", host)
    SecurityOptions().check_admin(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "localhost.example", ""])
def test_another_address_needs_tls_or_a_word(host: str) -> None:
    assert not is_loopback(host)
    for refused in (SecurityOptions(), secure("optional")):
        with pytest.raises(OptionError, match=r"host is .*allow_plaintext"):
            refused.check_listening("host", host)
    secure().check_listening("host", host)
    SecurityOptions(allow_plaintext=True).check_listening("host", host)


def test_an_admin_port_for_other_machines_needs_a_proof() -> None:
    host = "10.1.2.3"
    none = ClientCertificates.NONE.value
    secure().check_admin(host)
    SecurityOptions(allow_plaintext=True, admin_token_file="t").check_admin(host)
    secure(tls_client_certificates=none, admin_token_file="t").check_admin(host)
    for refused in (
        SecurityOptions(allow_plaintext=True),
        secure(tls_client_certificates=none),
        SecurityOptions(admin_token_file="t"),
    ):
        with pytest.raises(OptionError, match="admin_host is"):
            refused.check_admin(host)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"host": "10.1.2.3"}, "host is 10.1.2.3"),
        ({"admin_host": "10.1.2.3"}, "admin_host is 10.1.2.3"),
        ({"host": "0.0.0.0", "allow_plaintext": True}, "set advertised_host"),
        ({"tls": "on"}, "tls must be one of"),
    ],
)
def test_a_bookie_does_not_start_with_them(options: dict[str, Value], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        load_options(None, {}, {"data_dir": "d", **options})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_no_client_is_sent_to_all_addresses(host: str) -> None:
    assert is_wildcard(host)
    with pytest.raises(OptionError, match="set advertised_host"):
        check_advertised("advertised_host", "", host)
    with pytest.raises(OptionError, match="set advertised_host"):
        check_advertised("advertised_host", host or "0.0.0.0", "10.1.2.3")
    check_advertised("advertised_host", "node-1", host)
