"""Options of logins: which mechanisms a listener takes, and what does not fit together."""

import pytest

from broker_layer.options import BROKER
from broker_layer.security.login_options import LoginOptions, SecurityProtocol
from quire.identity.sasl.mechanism import Mechanism
from quire.options import OptionError

SHA_512, SHA_256 = Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256
PLAIN, BEARER = Mechanism.PLAIN, Mechanism.OAUTHBEARER
WITH_TLS, WITHOUT = SecurityProtocol.SASL_SSL, SecurityProtocol.SASL_PLAINTEXT
TOKENS = {
    "sasl_enabled_mechanisms": "OAUTHBEARER",
    "sasl_oauth_jwks": "https://issuer.example/keys",
    "sasl_oauth_issuer": "https://issuer.example",
    "sasl_oauth_audience": "quire",
}


def options_of(**values: str) -> LoginOptions:
    return BROKER.load(None, {}, {**values})


def test_scram_is_taken_without_an_option() -> None:
    for protocol in (WITH_TLS, WITHOUT):
        assert options_of().mechanisms(protocol) == (SHA_512, SHA_256)
        assert not list(options_of().wrong_logins(protocol))


def test_mechanisms_that_send_a_secret_need_tls() -> None:
    options = options_of(sasl_enabled_mechanisms=" PLAIN, OAUTHBEARER ,SCRAM-SHA-256")
    assert options.mechanisms(WITH_TLS) == (PLAIN, BEARER, SHA_256)
    assert options.mechanisms(WITHOUT) == (SHA_256,)


@pytest.mark.parametrize("text", ["PLAIN", "OAUTHBEARER", "PLAIN,OAUTHBEARER"])
def test_a_listener_that_takes_no_login_is_refused(text: str) -> None:
    options = options_of(sasl_enabled_mechanisms=text)
    with pytest.raises(OptionError, match="add SCRAM-SHA-512 to sasl_enabled_mechanisms"):
        options.mechanisms(WITHOUT)


@pytest.mark.parametrize("text", ["", "plain", "GSSAPI", "PLAIN,", "PLAIN SCRAM-SHA-256"])
def test_unknown_mechanisms_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match="is not one of PLAIN, SCRAM-SHA-256"):
        options_of(sasl_enabled_mechanisms=text).mechanisms(WITH_TLS)


def test_tokens_need_keys_an_issuer_and_an_audience() -> None:
    assert not list(options_of(**TOKENS).wrong_logins(WITH_TLS))
    for name in list(TOKENS)[1:]:
        texts = options_of(**{**TOKENS, name: ""}).wrong_logins(WITH_TLS)
        assert any(name in text for text in texts)


def test_tokens_need_nothing_where_they_are_not_taken() -> None:
    assert not list(
        options_of(sasl_enabled_mechanisms="SCRAM-SHA-512,OAUTHBEARER").wrong_logins(WITHOUT)
    )


@pytest.mark.parametrize(
    "url", ["http://issuer.example/keys", "file:///keys", "https://user:x@issuer.example", "://"]
)
def test_keys_come_by_https_or_from_a_file(url: str) -> None:
    """A URL of another form was taken for a file, and each token was refused for it."""
    with pytest.raises(OptionError, match="sasl_oauth_jwks: a URL of a JWKS document begins"):
        options_of(**{**TOKENS, "sasl_oauth_jwks": url})
    assert not list(
        options_of(**{**TOKENS, "sasl_oauth_jwks": "/etc/quire/jwks.json"}).wrong_logins(WITH_TLS)
    )


@pytest.mark.parametrize(
    ("value", "is_valid"), [(0, True), (86_400_000, True), (-1, False), (86_400_001, False)]
)
def test_the_time_of_a_session_is_bounded(value: int, *, is_valid: bool) -> None:
    given = {"connections_max_reauth_ms": value}
    if is_valid:
        assert BROKER.load(None, {}, given).connections_max_reauth_ms == value
    else:
        with pytest.raises(OptionError, match="connections-max-reauth-ms must be from 0"):
            BROKER.load(None, {}, given)
