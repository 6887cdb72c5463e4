"""Options of one gateway, each with its default, its bounds and its meaning.

Leaves opening the file and the names of flags to `quire`, reading values to
`quire.server.option_reading`, and the defaults of limits to `limits.py`.

Format: the `[gateway]` table of a TOML file; `QUIRE_GATEWAY_<OPTION>` and `QUIRE_METADATA` override
it; flags override both.

Invariant: every returned value has its option's type and is within its bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidUriError
from metadata.security.client_principals import parse_principals
from metadata.store.interface import SESSION_TIMEOUT_S
from metadata.store.uri import GATEWAY_PORT_DEFAULT, parse_zookeeper_uri
from quire.gateway.limits import GatewayLimits
from quire.server.errors import OptionError
from quire.server.option_reading import (
    METADATA_DEFAULT,
    OptionTable,
    Value,
    check_log_level,
    describe_options,
    option,
    read_options,
    with_options,
)
from quire.server.security_options import SecurityOptions

TABLE: Final = "gateway"
VARIABLE_PREFIX: Final = "QUIRE_GATEWAY_"

_PORT_MAX: Final = 65_535
_LIMITS: Final = GatewayLimits()


@dataclass(frozen=True, slots=True)
class GatewayOptions(SecurityOptions):
    """Options of one gateway. Build it with `load_options`."""

    metadata: str = option(METADATA_DEFAULT, "the cluster's ZooKeeper")
    host: str = option("127.0.0.1", "the address to listen on")
    port: int = option(
        GATEWAY_PORT_DEFAULT, "the port to listen on; 0: the kernel chooses", low=0, high=_PORT_MAX
    )
    admin_host: str = option("127.0.0.1", "the address of the admin HTTP server")
    admin_port: int = option(0, "its port; 0: the kernel chooses", low=0, high=_PORT_MAX)
    super_users: str = option(
        "", "principals that may read and change all metadata: User:NAME;User:NAME"
    )
    session_timeout_s: float = option(
        SESSION_TIMEOUT_S,
        "how long ZooKeeper keeps the registrations of clients of a dead gateway; no client's"
        " session is longer",
        low=1,
        high=300,
    )
    connections_max: int = option(
        _LIMITS.connections_max, "maximum number of client connections", low=1, high=100_000
    )
    connections_per_address_max: int = option(
        _LIMITS.connections_per_address_max,
        "maximum number of client connections from one address; 0: no limit",
        low=0,
        high=100_000,
    )
    sessions_max: int = option(
        _LIMITS.sessions_max,
        "maximum number of sessions, with those whose connection is lost",
        low=1,
        high=1_000_000,
    )
    sessions_per_principal_max: int = option(
        _LIMITS.sessions_per_principal_max,
        "maximum number of sessions of one principal; 0: no limit",
        low=0,
        high=1_000_000,
    )
    requests_running_max: int = option(
        _LIMITS.requests_running_max,
        "maximum number of running requests of one connection",
        low=1,
        high=10_000,
    )
    watches_max: int = option(
        _LIMITS.watches_max, "maximum number of watches of one connection", low=1, high=1_000_000
    )
    unread_bytes_max: int = option(
        _LIMITS.unread_bytes_max,
        "unsent bytes of one connection above which it is cut",
        low=2**20,
        high=2**30,
    )
    drain_timeout_s: float = option(
        _LIMITS.drain_timeout_s,
        "how long a stopping gateway waits for running requests",
        low=0,
        high=600,
    )
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")

    @property
    def limits(self) -> GatewayLimits:
        """Limits of the server, with the options of the same names."""
        return with_options(_LIMITS, self)


OPTIONS: Final = describe_options(GatewayOptions())
OPTION_TABLE: Final = OptionTable(TABLE, VARIABLE_PREFIX, OPTIONS)


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> GatewayOptions:
    """Merge the file's text, environment variables and flags; later sources override earlier ones.
    Raises OptionError.
    """
    values = read_options(OPTION_TABLE, file_text, variables, flags)
    options = GatewayOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    check_log_level(options.log_level)
    options.check_tls()
    options.check_listening("host", options.host)
    options.check_admin(options.admin_host)
    try:
        parse_principals(options.super_users)
    except ValueError as error:
        raise OptionError(f"super_users: {error}") from error
    try:
        parse_zookeeper_uri(options.metadata)
    except InvalidUriError as error:
        raise OptionError(f"metadata: {error}") from error
    return options
