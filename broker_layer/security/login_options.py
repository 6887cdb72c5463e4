"""Options of logins, which the options of a broker include.

Leaves the listeners to `broker_layer.options`, and files and mechanisms to `server.access`.

Invariant: mechanisms that send a secret are not taken on listeners without TLS.

Source: Kafka's `sasl.enabled.mechanisms` and `connections.max.reauth.ms`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker_layer.security.protocols import SecurityProtocol
from quire.identity.errors import JwksError
from quire.identity.sasl.jwks import parse_jwks
from quire.identity.sasl.jwks_documents import check_url, read_jwks_file
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.tokens import TokenRules
from quire.identity.tls import TlsFiles, client_context
from quire.options import OptionError, file_option, option
from quire.server.server_options import CertificateOptions

SECRET_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)
"""Mechanisms whose messages can be used by others that read them."""
HTTPS: Final = "https://"
_DAY_MS: Final = 24 * 3_600_000


def _check_source(source: str) -> None:
    try:
        if "://" in source:
            check_url(source, [source])
    except JwksError as error:
        raise ValueError(str(error)) from error


def _read_keys(source: str) -> None:
    if "://" not in source:
        parse_jwks(read_jwks_file(source))


def _load_authorities(path: str) -> None:
    client_context(TlsFiles(authorities=path))


@dataclass(frozen=True, slots=True)
class LoginOptions(CertificateOptions):
    """Options of security of a broker."""

    sasl_enabled_mechanisms: str = option(
        f"{Mechanism.SCRAM_SHA_512},{Mechanism.SCRAM_SHA_256}",
        "mechanisms of logins, separated by commas: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN and"
        " OAUTHBEARER; without TLS only the first two are taken",
    )
    connections_max_reauth_ms: int = option(
        0, "time after which a client must log in again; 0: it need not", low=0, high=_DAY_MS
    )
    sasl_oauth_jwks: str = option(
        "",
        "a file or an https URL with the public keys that sign tokens, as a JWKS document",
        parse=_check_source,
        read=_read_keys,
        is_live=True,
    )
    sasl_oauth_ca_file: str = file_option(
        "the authorities of that URL, in PEM; empty: those of the system",
        read=_load_authorities,
        is_live=True,
    )
    sasl_oauth_issuer: str = option("", "the issuer that a token must have")
    sasl_oauth_audience: str = option("", "the audience that a token must have")
    sasl_oauth_principal_claim: str = option("sub", "the claim with the name of the client")

    def mechanisms(self, protocol: SecurityProtocol) -> tuple[Mechanism, ...]:
        """Return the mechanisms of a listener, the preferred one first. Raises OptionError."""
        names = [each.strip() for each in self.sasl_enabled_mechanisms.split(",")]
        for name in names:
            if name not in list(Mechanism):
                known = ", ".join(Mechanism)
                raise OptionError(f"sasl_enabled_mechanisms: {name!r} is not one of {known}")
        found = tuple(Mechanism(each) for each in names)
        if protocol.uses_tls:
            return found
        private = tuple(each for each in found if each not in SECRET_MECHANISMS)
        if not private:
            raise OptionError(
                f"a listener with {protocol} takes no login: add SCRAM-SHA-512 to"
                f" sasl_enabled_mechanisms, or give it the protocol {SecurityProtocol.SASL_SSL}"
            )
        return private

    @property
    def token_rules(self) -> TokenRules:
        """What a token has to have. Raises ValueError."""
        return TokenRules(
            self.sasl_oauth_issuer, self.sasl_oauth_audience, self.sasl_oauth_principal_claim
        )

    def wrong_logins(self, protocol: SecurityProtocol) -> Iterator[str]:
        """Yield what is wrong with the options of a listener with logins."""
        try:
            mechanisms = self.mechanisms(protocol)
        except OptionError as error:
            yield str(error)
            return
        if Mechanism.OAUTHBEARER not in mechanisms:
            return
        if not self.sasl_oauth_jwks:
            yield "OAUTHBEARER needs sasl_oauth_jwks: name a file or an https URL"
        try:
            self.token_rules  # noqa: B018 - it checks itself
        except ValueError as error:
            yield f"OAUTHBEARER: {error}; see sasl_oauth_issuer and sasl_oauth_audience"
