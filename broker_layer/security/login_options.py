"""Options of logins, which the options of a broker include.

Leaves the listeners to `broker_layer.options`, and files and mechanisms to `served_logins`.

Invariant: mechanisms that send a secret are not taken on listeners without TLS.

Source: Kafka's `sasl.enabled.mechanisms` and `connections.max.reauth.ms`.
"""

from dataclasses import dataclass
from typing import Final

from broker_layer.security.protocols import SecurityProtocol
from quire.identity.errors import JwksError
from quire.identity.sasl.jwks_documents import check_url
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.tokens import TokenRules
from quire.server.errors import OptionError
from quire.server.option_reading import option
from quire.server.security_options import CertificateOptions

SECRET_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)
"""Mechanisms whose messages can be used by others that read them."""
HTTPS: Final = "https://"
_DAY_MS: Final = 24 * 3_600_000


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
        "", "a file or an https URL with the public keys that sign tokens, as a JWKS document"
    )
    sasl_oauth_ca_file: str = option(
        "", "the authorities of that URL, in PEM; empty: those of the system"
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

    def check_logins(self, protocol: SecurityProtocol) -> None:
        """Check the options of a listener with logins. Raises OptionError."""
        if Mechanism.OAUTHBEARER not in self.mechanisms(protocol):
            return
        if not self.sasl_oauth_jwks:
            raise OptionError("OAUTHBEARER needs sasl_oauth_jwks: name a file or an https URL")
        try:
            if "://" in self.sasl_oauth_jwks:
                check_url(self.sasl_oauth_jwks, [self.sasl_oauth_jwks])
        except JwksError as error:
            raise OptionError(f"sasl_oauth_jwks: {error}") from error
        try:
            self.token_rules  # noqa: B018 - it checks itself
        except ValueError as error:
            raise OptionError(
                f"OAUTHBEARER: {error}; see sasl_oauth_issuer and sasl_oauth_audience"
            ) from error
