"""Options of one console."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from metadata.security.client_principals import parse_principals
from metadata.server_options import metadata_option, principals_option
from metadata.store.uri import parse_metadata_uri
from quire.addresses import is_loopback
from quire.console.access import BASE_PATH_RULE, is_base_path
from quire.options import OptionTable, option, switch
from quire.server.overriding import override
from quire.server.server_options import Listener, SecurityOptions, TlsMode, host_option, port_option

PORT_DEFAULT: Final = 8_000


def _check_base_path(path: str) -> None:
    if not is_base_path(path):
        raise ValueError(f"it is {path!r}: {BASE_PATH_RULE}")


@dataclass(frozen=True, slots=True)
class ConsoleOptions(SecurityOptions):
    """Options of one console. Read them with CONSOLE."""

    metadata: str = metadata_option(
        "the cluster's metadata: zk://host:port,.../root", parse_metadata_uri
    )
    host: str = host_option()
    port: int = port_option(PORT_DEFAULT)
    allow_writes: bool = switch(
        "allow changes: drain a bookie, pause repair, change a topic; a login is needed then"
    )
    super_users: str = principals_option(
        "principals whose certificates are a login that may change too"
    )
    readers: str = principals_option("principals whose certificates are a login that may only read")
    host_names: str = option(
        "", "names, besides its address, by which browsers reach the console: NAME,NAME"
    )
    base_path: str = option(
        "", "path under which a proxy serves the console, such as /quire", parse=_check_base_path
    )
    survey_every_s: float = option(
        30.0, "pause between two checks of all ledgers", low=1, high=86_400
    )
    reports: str = option(
        "", "directory with comparisons of `quire bench compare`, each in a directory of its own"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which browsers reach the console, besides its address."""
        return tuple(part.strip().lower() for part in self.host_names.split(",") if part.strip())

    @property
    def changers(self) -> frozenset[str]:
        """Principals that may read and change, by their certificates."""
        return frozenset(parse_principals(self.super_users))

    @property
    def viewers(self) -> frozenset[str]:
        """Principals that may only read, by their certificates."""
        return frozenset(parse_principals(self.readers))

    @property
    def has_certified_logins(self) -> bool:
        """Whether clients' certificates may be logins."""
        return self.tls is TlsMode.REQUIRED and self.takes_certificates

    @override
    def addresses(self) -> Iterable[Listener]:
        """See `ServerOptions`."""
        yield Listener("port", self.host, self.port)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from SecurityOptions.contradictions(self)
        if self.tls is TlsMode.OPTIONAL:
            yield "tls must be off or required for a console: browsers use one of them"
        yield from self.open_listening("host", self.host)
        has_roles = bool(self.changers or self.viewers)
        if self.admin_token_file or (self.has_certified_logins and has_roles):
            return
        if not is_loopback(self.host):
            yield (
                f"host is {self.host}, where other machines can connect: set admin_token_file, or"
                f" {self.tls_hint} with clients' certificates, and super_users or readers"
            )
        elif self.has_certified_logins and not self.allow_writes:
            yield (
                "no certificate is a login: set super_users, readers or admin_token_file, or"
                " tls_client_certificates to none"
            )


CONSOLE: Final = OptionTable("console", ConsoleOptions)
