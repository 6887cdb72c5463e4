"""Options of one console, each with its default, its bounds and its meaning.

Leaves opening the file and the names of flags to `quire.cli`, and reading values to
`quire.server.option_reading`.

Format: the `[console]` table of a TOML file; `QUIRE_CONSOLE_<OPTION>` and `QUIRE_METADATA` override
it; flags override both.

Invariant: every returned value has its option's type and is within its bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidUriError
from metadata.security.client_principals import parse_principals
from metadata.store.uri import parse_metadata_uri
from quire.console.access import BASE_PATH_RULE, is_base_path
from quire.identity.server_tls import ClientCertificates
from quire.server.errors import OptionError
from quire.server.option_reading import (
    METADATA_DEFAULT,
    OptionTable,
    Value,
    check_log_level,
    describe_options,
    option,
    read_options,
)
from quire.server.overriding import override
from quire.server.security_options import SecurityOptions, TlsMode, is_loopback

TABLE: Final = "console"
VARIABLE_PREFIX: Final = "QUIRE_CONSOLE_"
PORT_DEFAULT: Final = 8_000

_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class ConsoleOptions(SecurityOptions):
    """Options of one console. Build it with `load_options`."""

    metadata: str = option(METADATA_DEFAULT, "the cluster's metadata: zk://host:port,.../root")
    host: str = option("127.0.0.1", "the address to listen on")
    port: int = option(
        PORT_DEFAULT, "the port to listen on; 0: the kernel chooses", low=0, high=_PORT_MAX
    )
    allow_writes: bool = option(
        False,  # noqa: FBT003
        "allow changes: drain a bookie, pause repair, change a topic; a login is needed then",
    )
    super_users: str = option(
        "", "principals whose certificates are a login that may change too: User:NAME;User:NAME"
    )
    readers: str = option(
        "", "principals whose certificates are a login that may only read: User:NAME;User:NAME"
    )
    host_names: str = option(
        "", "names, besides its address, by which browsers reach the console: NAME,NAME"
    )
    base_path: str = option("", "path under which a proxy serves the console, such as /quire")
    survey_every_s: float = option(
        30.0, "pause between two checks of all ledgers, in seconds", low=1, high=86_400
    )
    reports: str = option(
        "", "directory with comparisons of `quire bench compare`, each in a directory of its own"
    )
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which browsers reach the console, besides its address."""
        return tuple(each.strip().lower() for each in self.host_names.split(",") if each.strip())

    def check_host(self) -> None:
        """Refuse a console that anyone on another machine can use. Raises OptionError."""
        self.check_listening("host", self.host)
        for name, text in (("super_users", self.super_users), ("readers", self.readers)):
            try:
                parse_principals(text)
            except ValueError as error:
                raise OptionError(f"{name}: {error}") from error
        if self.admin_token_file or (self.takes_certificates and (self.changers or self.viewers)):
            return
        if not is_loopback(self.host):
            raise OptionError(
                f"host is {self.host}, where other machines can connect: set admin_token_file, or"
                f" {self.tls_hint} with clients' certificates, and super_users or readers"
            )
        if self.takes_certificates and not self.allow_writes:
            raise OptionError(
                "no certificate is a login: set super_users, readers or admin_token_file, or"
                " tls_client_certificates to none"
            )

    @property
    def takes_certificates(self) -> bool:
        """Whether clients may have certificates."""
        certificates = ClientCertificates(self.tls_client_certificates)
        return self.tls_mode is TlsMode.REQUIRED and certificates is not ClientCertificates.NONE

    @property
    def changers(self) -> frozenset[str]:
        """Principals whose certificates allow to read and to change."""
        return frozenset(parse_principals(self.super_users))

    @property
    def viewers(self) -> frozenset[str]:
        """Principals whose certificates allow to read."""
        return frozenset(parse_principals(self.readers))

    @override
    def check_tls(self) -> None:
        """See `CertificateOptions`."""
        if self.tls == "optional":
            raise OptionError("tls must be off or required for a console: browsers use one of them")
        SecurityOptions.check_tls(self)


OPTIONS: Final = describe_options(ConsoleOptions())
OPTION_TABLE: Final = OptionTable(TABLE, VARIABLE_PREFIX, OPTIONS)


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> ConsoleOptions:
    """Merge the file's text, environment variables and flags; later sources override earlier ones.
    Raises OptionError.
    """
    values = read_options(OPTION_TABLE, file_text, variables, flags)
    options = ConsoleOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    check_log_level(options.log_level)
    options.check_tls()
    options.check_host()
    if not is_base_path(options.base_path):
        raise OptionError(f"base_path is {options.base_path!r}: {BASE_PATH_RULE}")
    try:
        parse_metadata_uri(options.metadata)
    except InvalidUriError as error:
        raise OptionError(f"metadata: {error}") from error
    return options
