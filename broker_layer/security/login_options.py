"""Protocols of listeners, and options of logins, which the options of a broker include.

Leaves the listeners to `broker_layer.options`, and files and mechanisms to `server.access`.

Format of `listener_security_protocol_map`: `NAME:PROTOCOL`, separated by commas. A listener that is
not named there has the protocol that is its name.

Invariant: mechanisms that send a secret are not taken on listeners without TLS.

Source: Kafka's `listener.security.protocol.map`, `sasl.enabled.mechanisms` and
`connections.max.reauth.ms`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quire.identity.errors import JwksError
from quire.identity.sasl.jwks import check_url, parse_jwks, read_jwks_file
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.tokens import TokenRules
from quire.identity.tls import TlsFiles, client_context
from quire.options import OptionError, file_option, option
from quire.server.server_options import CertificateOptions

SECRET_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)
"""Mechanisms whose messages can be used by others that read them."""
HTTPS: Final = "https://"
_DAY_MS: Final = 24 * 3_600_000


class SecurityProtocol(StrEnum):
    """Whether the clients of a listener use TLS and logins."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Whether connections begin with a handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_logins(self) -> bool:
        """Whether clients log in before they are served."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def protocols_of(listeners: Collection[str], text: str) -> Mapping[str, SecurityProtocol]:
    """Return the protocol of each listener. Raises ValueError."""
    given = _parse(text)
    for name in given:
        if name not in listeners:
            raise ValueError(f"{name} is not a listener: add it to listeners, or remove it")
    protocols: dict[str, SecurityProtocol] = {}
    for name in listeners:
        if name not in given and name not in list(SecurityProtocol):
            raise ValueError(
                f"the listener {name} has no protocol: write {name}:PROTOCOL, with one of"
                f" {', '.join(SecurityProtocol)}"
            )
        protocols[name] = given.get(name) or SecurityProtocol(name)
    return protocols


def _parse(text: str) -> dict[str, SecurityProtocol]:
    given: dict[str, SecurityProtocol] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, protocol = (piece.strip() for piece in part.partition(":"))
        if not (name and colon) or protocol not in list(SecurityProtocol):
            raise ValueError(
                f"{part.strip()!r} is not NAME:PROTOCOL, with one of {', '.join(SecurityProtocol)}"
            )
        if name in given:
            raise ValueError(f"the listener {name} is given twice")
        given[name] = SecurityProtocol(protocol)
    return given


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
        names = [part.strip() for part in self.sasl_enabled_mechanisms.split(",")]
        for name in names:
            if name not in list(Mechanism):
                known = ", ".join(Mechanism)
                raise OptionError(f"sasl_enabled_mechanisms: {name!r} is not one of {known}")
        mechanisms = tuple(Mechanism(text) for text in names)
        if protocol.uses_tls:
            return mechanisms
        private = tuple(mechanism for mechanism in mechanisms if mechanism not in SECRET_MECHANISMS)
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
