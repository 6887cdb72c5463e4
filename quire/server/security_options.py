"""Options of a server's security, the same for each kind, and refusal to be open by accident.

Leaves contexts to `quire.identity.server_tls`, and listening to `quire.server.tls_listening`.

Invariants: a server listens on another address than a loopback one only with TLS, or if its options
say that it may do so without; an admin port there needs a token or a client's certificate; no
client is sent to an address that means "all addresses".
"""

import ipaddress
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quire.identity.certificate_names import DEFAULT_RULES, MappingRule, parse_mapping_rules
from quire.identity.refused_certificates import RefusedCertificates
from quire.identity.server_tls import ClientCertificates, ServerTls
from quire.identity.tls import TlsFiles
from quire.server.errors import OptionError
from quire.server.option_reading import option
from quire.server.overriding import override

LOCAL_NAME: Final = "localhost"


class TlsMode(StrEnum):
    """Whether clients use TLS."""

    OFF = "off"
    OPTIONAL = "optional"
    """The same port takes connections with TLS and without, while a cluster changes."""
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class CertificateOptions(ABC):
    """Options of security, which the options of each kind of server include."""

    tls_cert_file: str = option("", "the server's certificate and its chain, in PEM")
    tls_key_file: str = option("", "its key, in PEM; only its owner may read the file")
    tls_ca_file: str = option("", "the authorities that sign clients' certificates, in PEM")
    tls_client_certificates: str = option(
        ClientCertificates.REQUIRED.value,
        "whether clients must have certificates: none, requested or required",
    )
    tls_refused_file: str = option(
        "",
        "serial numbers of clients' certificates that are refused though an authority signed them,"
        " one a line",
    )
    tls_principal_rules: str = option(
        DEFAULT_RULES,
        "who a client with a certificate is: DEFAULT (its subject), RULE:pattern/replacement/[LU]",
    )
    allow_plaintext: bool = option(
        False,  # noqa: FBT003
        "listen on other than loopback addresses without TLS",
    )
    admin_token_file: str = option(
        "",
        "a secret that requests to the admin server send as `Authorization: Bearer SECRET`",
    )

    @property
    @abstractmethod
    def tls_mode(self) -> TlsMode:
        """Whether clients use TLS."""

    @property
    @abstractmethod
    def tls_hint(self) -> str:
        """What to set so that all clients use TLS."""

    @property
    def principal_rules(self) -> tuple[MappingRule, ...]:
        """Rules for the principals of clients with certificates."""
        return parse_mapping_rules(self.tls_principal_rules)

    def server_tls(self) -> ServerTls | None:
        """Load the certificates; None without TLS. Raises SecurityError."""
        if self.tls_mode is TlsMode.OFF:
            return None
        files = TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_ca_file)
        refused = RefusedCertificates(self.tls_refused_file)
        return ServerTls(files, ClientCertificates(self.tls_client_certificates), refused)

    def check_tls(self) -> None:
        """Check the options of TLS together. Raises OptionError."""
        check_choice("tls_client_certificates", self.tls_client_certificates, ClientCertificates)
        try:
            parse_mapping_rules(self.tls_principal_rules)
        except ValueError as error:
            raise OptionError(f"tls_principal_rules: {error}") from error
        wants_clients = self.tls_client_certificates != ClientCertificates.NONE
        if self.tls_refused_file and (self.tls_mode is TlsMode.OFF or not wants_clients):
            raise OptionError(
                "tls_refused_file is set, and clients send no certificates: set"
                " tls_client_certificates to requested or required, and use TLS"
            )
        if self.tls_mode is TlsMode.OFF:
            return
        for name, value in (
            ("tls_cert_file", self.tls_cert_file),
            ("tls_key_file", self.tls_key_file),
            ("tls_ca_file", self.tls_ca_file if wants_clients else "none"),
        ):
            if not value:
                other = ", or set tls_client_certificates to none" if name == "tls_ca_file" else ""
                raise OptionError(
                    f"TLS is {self.tls_mode}, and {name} is not set: name a PEM file{other}"
                )

    def check_admin(self, host: str) -> None:
        """Refuse an admin server that anyone on another machine can use. Raises OptionError."""
        self.check_listening("admin_host", host)
        if is_loopback(host) or self.admin_token_file:
            return
        wants_clients = self.tls_client_certificates != ClientCertificates.NONE
        if self.tls_mode is not TlsMode.REQUIRED or not wants_clients:
            raise OptionError(
                f"admin_host is {host}, where other machines can connect: set admin_token_file, or"
                f" {self.tls_hint} with clients' certificates"
            )

    def check_listening(self, name: str, host: str) -> None:
        """Refuse to listen without TLS where others can connect; `name` is the option with the
        host. Raises OptionError.
        """
        is_open = self.tls_mode is not TlsMode.REQUIRED and not is_loopback(host)
        if is_open and not self.allow_plaintext:
            raise OptionError(
                f"{name} is {host}, where other machines can connect, and TLS is {self.tls_mode}:"
                f" {self.tls_hint}, or set allow_plaintext to true if the network is closed"
            )


@dataclass(frozen=True, slots=True)
class SecurityOptions(CertificateOptions):
    """Options of a server whose ports all use TLS or none does."""

    tls: str = option(
        TlsMode.OFF.value,
        "whether clients use TLS: off, optional (with it or without, while a cluster changes), or"
        " required",
    )

    @property
    @override
    def tls_mode(self) -> TlsMode:
        """See `CertificateOptions`."""
        return TlsMode(self.tls)

    @property
    @override
    def tls_hint(self) -> str:
        """See `CertificateOptions`."""
        return "set tls to required"

    @override
    def check_tls(self) -> None:
        """See `CertificateOptions`."""
        check_choice("tls", self.tls, TlsMode)
        CertificateOptions.check_tls(self)


def check_choice(name: str, value: str, kind: type[StrEnum]) -> None:
    """Check that an option has one of its values. Raises OptionError."""
    if value not in list(kind):
        raise OptionError(f"{name} must be one of {', '.join(kind)}, not {value!r}")


def check_advertised(name: str, advertised: str, listening: str) -> None:
    """Refuse to send clients to an address that means "all addresses"; `name` is the option with
    the advertised one. Raises OptionError.
    """
    host = advertised or listening
    if is_wildcard(host):
        raise OptionError(
            f"clients cannot connect to {host}, which means all addresses: set {name} to the name"
            " or the address of this machine"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCAL_NAME


def is_wildcard(host: str) -> bool:
    """Return whether an address means "all addresses"."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
