"""Options that servers of every kind have, and refusal to be open by accident.

Invariants: a server listens on another address than a loopback one only with TLS, or if its options
say that it may do so without; an admin port there needs a token or a client's certificate; no
client is sent to an address that means "all addresses"; no two listeners have one port.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quire.addresses import LOCAL_NAME, PORT_MAX, is_loopback, is_wildcard
from quire.copyable import CopyableError
from quire.identity.principal import DEFAULT_RULES, MappingRule, parse_mapping_rules
from quire.identity.secret_files import check_private
from quire.identity.tls import ClientCertificates, RefusedCertificates, ServerTls, TlsFiles
from quire.options import Options, described, file_option, option, switch
from quire.server.overriding import override
from quire.server.token_check import read_token

LOCAL_ADDRESS: Final = "127.0.0.1"


class TlsMode(StrEnum):
    """Whether clients use TLS."""

    OFF = "off"
    OPTIONAL = "optional"
    """The same port takes connections with TLS and without, while a cluster changes."""
    REQUIRED = "required"


class LogLevel(StrEnum):
    """Least level of the lines in a server's log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address on which a server listens."""

    option: str
    """Name of the option with the port."""
    host: str
    port: int
    """0: the kernel chooses one."""

    def clashes(self, other: "Listener") -> bool:
        """Return whether the addresses of two listeners with one port are the same."""
        if is_wildcard(self.host) or is_wildcard(other.host):
            return True
        first, second = self.host, other.host
        return first == second or {first, second} == {LOCAL_NAME, LOCAL_ADDRESS}


@dataclass(frozen=True, slots=True)
class ServerOptions(Options):
    """Options of every server."""

    die_with_parent: bool = switch("stop when standard input ends")
    log_level: LogLevel = option(LogLevel.INFO, "least level of the lines in the log")

    def addresses(self) -> Iterable[Listener]:
        """Return the addresses on which the server listens."""
        return ()

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        return port_clashes(("", address) for address in self.addresses())

    def unusable_files(self) -> Iterator[str]:
        """Read the files that the options name; yield what is wrong with each."""
        for name, spec in described(type(self)).items():
            value = getattr(self, name)
            if not value:
                continue
            try:
                if spec.facts.is_secret:
                    check_private(value)
                if spec.facts.read is not None:
                    spec.facts.read(value)
            except CopyableError as error:
                yield f"{name}: {error}"


@dataclass(frozen=True, slots=True)
class CertificateOptions(ServerOptions, ABC):
    """Options of security, which the options of each kind of server include."""

    tls_cert_file: str = file_option("the server's certificate and its chain, in PEM", is_live=True)
    tls_key_file: str = file_option(
        "its key, in PEM; only its owner may read the file", is_secret=True, is_live=True
    )
    tls_ca_file: str = file_option(
        "the authorities that sign clients' certificates, in PEM", is_live=True
    )
    tls_client_certificates: ClientCertificates = option(
        ClientCertificates.REQUIRED, "whether clients must have certificates"
    )
    tls_refused_file: str = file_option(
        "serial numbers of clients' certificates that are refused though an authority signed them,"
        " one a line",
        read=RefusedCertificates,
        is_live=True,
    )
    tls_principal_rules: str = option(
        DEFAULT_RULES,
        "who a client with a certificate is: DEFAULT (its subject), RULE:pattern/replacement/[LU]",
        parse=parse_mapping_rules,
    )
    allow_plaintext: bool = switch("listen on other than loopback addresses without TLS")
    admin_token_file: str = file_option(
        "a secret that requests to the admin server send as `Authorization: Bearer SECRET`",
        read=read_token,
        is_secret=True,
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

    @property
    def takes_certificates(self) -> bool:
        """Whether clients may have certificates, if they use TLS."""
        return self.tls_client_certificates is not ClientCertificates.NONE

    def server_tls(self) -> ServerTls | None:
        """Load the certificates; None without TLS. Raises SecurityError."""
        if self.tls_mode is TlsMode.OFF:
            return None
        files = TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_ca_file)
        refused = RefusedCertificates(self.tls_refused_file)
        return ServerTls(files, self.tls_client_certificates, refused)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from ServerOptions.contradictions(self)
        if self.tls_refused_file and (self.tls_mode is TlsMode.OFF or not self.takes_certificates):
            yield (
                "tls_refused_file is set, and clients send no certificates: set"
                " tls_client_certificates to requested or required, and use TLS"
            )
        if self.tls_mode is not TlsMode.OFF:
            for name in self._missing_files():
                other = ", or set tls_client_certificates to none" if name == "tls_ca_file" else ""
                yield f"TLS is {self.tls_mode}, and {name} is not set: name a PEM file{other}"

    @override
    def unusable_files(self) -> Iterator[str]:
        """See `ServerOptions`."""
        problems = list(ServerOptions.unusable_files(self))
        yield from problems
        if self.tls_mode is TlsMode.OFF or any(self._missing_files()):
            return
        try:
            self.server_tls()
        except CopyableError as error:
            text = str(error)
            if not any(text in problem for problem in problems):
                yield f"tls_cert_file: {text}"

    def open_admin(self, host: str) -> Iterator[str]:
        """Refuse an admin server that anyone on another machine can use."""
        yield from self.open_listening("admin_host", host)
        if is_loopback(host) or self.admin_token_file:
            return
        if self.tls_mode is not TlsMode.REQUIRED or not self.takes_certificates:
            yield (
                f"admin_host is {host}, where other machines can connect: set admin_token_file, or"
                f" {self.tls_hint} with clients' certificates"
            )

    def open_listening(self, name: str, host: str) -> Iterator[str]:
        """Refuse to listen without TLS where others can connect; `name` is the option with the
        host.
        """
        is_open = self.tls_mode is not TlsMode.REQUIRED and not is_loopback(host)
        if is_open and not self.allow_plaintext:
            yield (
                f"{name} is {host}, where other machines can connect, and TLS is {self.tls_mode}:"
                f" {self.tls_hint}, or set allow_plaintext to true if the network is closed"
            )

    def _missing_files(self) -> Iterator[str]:
        for name in ("tls_cert_file", "tls_key_file", "tls_ca_file"):
            is_needed = name != "tls_ca_file" or self.takes_certificates
            if is_needed and not getattr(self, name):
                yield name


@dataclass(frozen=True, slots=True)
class SecurityOptions(CertificateOptions):
    """Options of a server whose ports all use TLS or none does."""

    tls: TlsMode = option(
        TlsMode.OFF,
        "whether clients use TLS; optional: with it or without, while a cluster changes",
    )

    @property
    @override
    def tls_mode(self) -> TlsMode:
        """See `CertificateOptions`."""
        return self.tls

    @property
    @override
    def tls_hint(self) -> str:
        """See `CertificateOptions`."""
        return "set tls to required"


def admin_host_option() -> str:
    """Declare the option `admin_host`."""
    return option(LOCAL_ADDRESS, "the address of the admin HTTP server")


def admin_port_option() -> int:
    """Declare the option `admin_port`."""
    return port_option(0, "the port of the admin server")


def host_option() -> str:
    """Declare the option `host`."""
    return option(LOCAL_ADDRESS, "the address to listen on")


def port_option(default: int, text: str = "the port to listen on") -> int:
    """Declare an option with a port."""
    return option(default, f"{text}; 0: the kernel chooses", low=0, high=PORT_MAX)


def connections_option(default: int, high: int) -> int:
    """Declare the option `connections_max`."""
    return option(default, "maximum number of client connections", low=1, high=high)


def connections_per_address_option(high: int) -> int:
    """Declare the option `connections_per_address_max`."""
    text = "maximum number of client connections from one address; 0: no limit"
    return option(0, text, low=0, high=high)


def drain_timeout_option(default_s: float, kind: str) -> float:
    """Declare the option `drain_timeout_s`."""
    text = f"how long a stopping {kind} waits for running requests"
    return option(default_s, text, low=0, high=600)


def port_clashes(listeners: Iterable[tuple[str, Listener]]) -> Iterator[str]:
    """Yield an error for each listener with the address of one of another server. Each comes with
    the title of its server; without titles all are compared.
    """
    taken: dict[int, list[tuple[str, Listener]]] = {}
    for title, listener in listeners:
        for other_title, other in taken.get(listener.port, ()):
            if (not title or title != other_title) and listener.clashes(other):
                this, that = (f"{title} {listener.option}", f"{other_title} {other.option}")
                yield f"{this.lstrip()} is that of {that.lstrip()}: {listener.port}"
                break
        if listener.port:
            taken.setdefault(listener.port, []).append((title, listener))


def unreachable(name: str, advertised: str, listening: str) -> Iterator[str]:
    """Refuse to send clients to an address that means "all addresses"; `name` is the option with
    the advertised one.
    """
    host = advertised or listening
    if is_wildcard(host):
        yield (
            f"clients cannot connect to {host}, which means all addresses: set {name} to the name"
            " or the address of this machine"
        )
