"""Options of one bookie, each with its default, its bounds and its meaning.

Leaves opening the file and the names of flags to `quire`, reading values to
`quire.server.option_reading`, and the defaults of limits to `bookie.config` and
`bookie.server.server_limits`.

Format: the `[bookie]` table of a TOML file; `QUIRE_BOOKIE_<OPTION>` and `QUIRE_METADATA` override
it; flags override both. Other tables of the file belong to other servers and are ignored.

`BookieOptions` has one flat field for each option, as the file, the variables and the flags have.
It takes the defaults of limits from `StorageConfig` and `ServerLimits`, and `storage` and `server`
build these classes from the fields of the same names.

Invariant: every returned value has its option's type and is within its bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.server.access import AuthorizerMode, RoleOptions
from bookie.server.client_logins import LoginMode
from bookie.server.server_limits import ServerLimits
from metadata.errors import InvalidUriError
from metadata.registry.location import UNKNOWN_LOCATION
from metadata.registry.registration import OWNERS_FEATURE, TLS_FEATURE
from metadata.security.client_principals import parse_principals
from metadata.store.interface import SESSION_TIMEOUT_S
from metadata.store.uri import parse_zookeeper_uri
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
    with_options,
)
from quire.server.security_options import SecurityOptions, TlsMode, check_advertised, check_choice

TABLE: Final = "bookie"
VARIABLE_PREFIX: Final = "QUIRE_BOOKIE_"

_PORT_MAX: Final = 65_535
_GIB: Final = 2**30
_STORAGE: Final = StorageConfig()
_SERVER: Final = ServerLimits()


@dataclass(frozen=True, slots=True)
class BookieOptions(SecurityOptions):
    """Options of one bookie. Build it with `load_options`."""

    data_dir: str = option("", "the directory of all data; log/ and index/ in it may be mounts")
    metadata: str = option(METADATA_DEFAULT, "the cluster's metadata service")
    host: str = option("127.0.0.1", "the address to listen on")
    port: int = option(0, "the port to listen on; 0: the kernel chooses", low=0, high=_PORT_MAX)
    advertised_host: str = option("", "the name that clients connect to; host when empty")
    admin_host: str = option("127.0.0.1", "the address of the admin HTTP server")
    admin_port: int = option(0, "its port; 0: the kernel chooses", low=0, high=_PORT_MAX)
    location: str = option(
        UNKNOWN_LOCATION,
        "/region/rack/host: copies of an entry are on different hosts if enough are up; a host"
        " `default` is replaced by the machine's name",
    )
    weight: int = option(1, "share of new ledgers relative to others", low=0, high=1_000)
    session_timeout_s: float = option(
        SESSION_TIMEOUT_S,
        "how long the metadata service keeps the registration of a dead bookie",
        low=1,
        high=300,
    )
    position_interval_s: float = option(
        1.0,
        "how often the end of a growing log is recorded in the metadata service, to detect copies",
        low=0.05,
        high=3_600,
    )
    connections_max: int = option(
        _SERVER.connections_max, "maximum number of client connections", low=1, high=100_000
    )
    connections_per_address_max: int = option(
        _SERVER.connections_per_address_max,
        "maximum number of client connections from one address; 0: no limit",
        low=0,
        high=100_000,
    )
    frame_bytes_max: int = option(
        _SERVER.frame_bytes_max, "largest frame accepted", low=64 * 2**10, high=16 * 2**20
    )
    entry_bytes_max: int = option(
        _SERVER.entry_bytes_max, "largest entry accepted", low=1, high=15 * 2**20
    )
    read_bytes_max: int = option(
        _SERVER.read_bytes_max, "largest answer to one read", low=2**16, high=15 * 2**20
    )
    long_polls_max: int = option(
        _SERVER.long_polls_max, "maximum number of waiting long polls", low=1, high=10_000_000
    )
    drain_timeout_s: float = option(
        _SERVER.drain_timeout_s,
        "how long a stopping bookie waits for running requests",
        low=0,
        high=600,
    )
    drain_grace_s: float = option(
        20.0,
        "how long a draining bookie accepts new entries, so that writers leave before",
        low=0,
        high=3_600,
    )
    repair: bool = option(
        True,  # noqa: FBT003
        "run a process beside it that repairs ledgers, and is a candidate for the auditor",
    )
    collect_interval_s: float = option(
        600.0,
        "minimum time of a full pass over stored ledgers that looks for deleted ones",
        low=1,
        high=86_400,
    )
    collect_reads_per_s: int = option(
        50, "metadata reads per second of a full pass over stored ledgers", low=1, high=10_000
    )
    disk_hung_s: float = option(
        30.0,
        "a write or sync that takes longer counts as a hung disk, and the bookie deregisters",
        low=0.1,
        high=3_600,
    )
    disk_high_mark: float = option(
        _STORAGE.disk_high_mark,
        "share of the disk in use at which the bookie becomes read-only",
        low=0.1,
        high=1.0,
    )
    disk_low_mark: float = option(
        _STORAGE.disk_low_mark, "share below which it becomes writable again", low=0.05, high=1.0
    )
    reserve_bytes_min: int = option(
        _STORAGE.reserve_bytes_min,
        "space reserved for fences, deletions and the index; that for one log file is added",
        low=0,
        high=1024 * _GIB,
    )
    reserve_share: float = option(
        _STORAGE.reserve_share,
        "share of the disk to reserve instead, if that is more",
        low=0.0,
        high=0.5,
    )
    capacity_bytes: int = option(
        0, "use at most this much of the disk; 0: all of it", low=0, high=1024 * 1024 * _GIB
    )
    disk_check_interval_s: float = option(
        _STORAGE.disk_check_interval_s,
        "how often the free space of the disks is measured",
        low=0.1,
        high=300,
    )
    clean_interval_s: float = option(
        _STORAGE.clean_interval_s,
        "how often cleaning looks for work when it has none",
        low=0.1,
        high=86_400,
    )
    clean_live_share_max: float = option(
        _STORAGE.clean_live_share_max,
        "log files with a smaller share of live bytes are rewritten",
        low=0.0,
        high=0.9,
    )
    clean_bytes_per_s_min: int = option(
        _STORAGE.clean_bytes_per_s_min, "rate of cleaning when little is due", low=2**16, high=_GIB
    )
    clean_bytes_per_s_max: int = option(
        _STORAGE.clean_bytes_per_s_max,
        "rate of cleaning when much is due or the disk is nearly full",
        low=2**16,
        high=16 * _GIB,
    )
    checkpoint_log_bytes: int = option(
        _STORAGE.checkpoint_log_bytes,
        "bytes of log between two checkpoints",
        low=2**16,
        high=16 * _GIB,
    )
    checkpoint_records: int = option(
        _STORAGE.checkpoint_records,
        "maximum number of records between two checkpoints",
        low=1_000,
        high=10_000_000,
    )
    checkpoint_ledgers: int = option(
        _STORAGE.checkpoint_ledgers,
        "maximum number of changed ledgers between two checkpoints",
        low=1_000,
        high=10_000_000,
    )
    segment_bytes_max: int = option(
        _STORAGE.segment_bytes_max, "size of a log file", low=2**16, high=2 * _GIB
    )
    queue_bytes_max: int = option(
        _STORAGE.queue_bytes_max,
        "maximum of accepted bytes not yet durable; above it, no requests are read",
        low=2**20,
        high=_GIB,
    )
    recent_bytes_max: int = option(
        _STORAGE.recent_bytes_max,
        "recent entries kept in memory for tailing readers",
        low=0,
        high=64 * _GIB,
    )
    cached_bytes_max: int = option(
        _STORAGE.cached_bytes_max,
        "size of each log file's end that stays in the system's page cache",
        low=0,
        high=2 * _GIB,
    )
    tombstones_max: int = option(
        _STORAGE.tombstones_max,
        "maximum number of deleted ledger ids stored individually",
        low=0,
        high=100_000_000,
    )
    feed_age_h: float = option(
        24.0, "age at which entries of the deletion feed are removed", low=0.01, high=8_760
    )
    hot_ledgers_max: int = option(
        _STORAGE.hot_ledgers_max,
        "maximum number of unchanged ledger states in memory",
        low=1,
        high=10_000_000,
    )
    client_logins: str = option(
        LoginMode.OFF.value,
        "logins of clients with the password of a user (`quire user`): off, optional or required",
    )
    authorizer: str = option(
        AuthorizerMode.OFF.value,
        "roles of clients on ledgers: off, record (new ledgers have owners, and nothing is refused)"
        " or enforce",
    )
    super_users: str = option(
        "", "principals that may do everything, such as brokers: User:NAME;User:NAME"
    )
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")

    @property
    def login_mode(self) -> LoginMode:
        """Whether clients log in."""
        return LoginMode(self.client_logins)

    @property
    def roles(self) -> RoleOptions:
        """What the bookie does with the principals of its clients."""
        return RoleOptions(
            AuthorizerMode(self.authorizer),
            self.principal_rules,
            parse_principals(self.super_users),
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the registration names."""
        features = {
            TLS_FEATURE: self.tls_mode is TlsMode.OPTIONAL,
            OWNERS_FEATURE: self.roles.mode is not AuthorizerMode.OFF,
        }
        return tuple(feature for feature, is_on in features.items() if is_on)

    @property
    def storage(self) -> StorageConfig:
        """Limits of the storage, with the options of the same names."""
        return with_options(_STORAGE, self)

    @property
    def server(self) -> ServerLimits:
        """Limits of the server, with the options of the same names."""
        return with_options(_SERVER, self)


OPTIONS: Final = describe_options(BookieOptions())
OPTION_TABLE: Final = OptionTable(TABLE, VARIABLE_PREFIX, OPTIONS)


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> BookieOptions:
    """Merge the file's text, environment variables and flags; later sources override earlier ones.
    Raises OptionError.
    """
    values = read_options(OPTION_TABLE, file_text, variables, flags)
    return checked_options(values)


def checked_options(values: Mapping[str, Value]) -> BookieOptions:
    """Return the options with these values, and the others with their defaults. Raises
    OptionError.
    """
    options = BookieOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    _check_together(options)
    return options


def _check_together(options: BookieOptions) -> None:
    if not options.data_dir:
        raise OptionError("data_dir is not set: give --data-dir, or data_dir in the file")
    check_log_level(options.log_level)
    try:
        parse_zookeeper_uri(options.metadata)
    except InvalidUriError as error:
        raise OptionError(f"metadata: {error}") from None
    options.check_tls()
    check_choice("client_logins", options.client_logins, LoginMode)
    _check_roles(options)
    options.check_listening("host", options.host)
    options.check_admin(options.admin_host)
    check_advertised("advertised_host", options.advertised_host, options.host)
    if options.disk_low_mark > options.disk_high_mark:
        raise OptionError(
            f"disk_low_mark is {options.disk_low_mark}, above disk_high_mark, "
            f"{options.disk_high_mark}: lower the first or raise the second"
        )
    if options.clean_bytes_per_s_min > options.clean_bytes_per_s_max:
        raise OptionError(
            f"clean_bytes_per_s_min is {options.clean_bytes_per_s_min}, above "
            f"clean_bytes_per_s_max, {options.clean_bytes_per_s_max}: lower the first or "
            "raise the second"
        )
    if options.entry_bytes_max + 1024 > options.frame_bytes_max:
        raise OptionError(
            f"frame_bytes_max is {options.frame_bytes_max}: it must be at least entry_bytes_max "
            f"plus 1024, {options.entry_bytes_max + 1024}"
        )
    parts = options.location.split("/")
    if len(parts) != 4 or parts[0] or not all(parts[1:]):  # noqa: PLR2004 - "", region, rack, host
        raise OptionError(f"location must be /region/rack/host, not {options.location!r}")


def _check_roles(options: BookieOptions) -> None:
    check_choice("authorizer", options.authorizer, AuthorizerMode)
    try:
        parse_principals(options.super_users)
    except ValueError as error:
        raise OptionError(f"super_users: {error}") from error
    mode, certificates = options.roles.mode, options.tls_client_certificates
    if mode is AuthorizerMode.OFF:
        return
    has_certificates = options.tls_mode is not TlsMode.OFF and certificates != (
        ClientCertificates.NONE
    )
    if not has_certificates and options.login_mode is LoginMode.OFF:
        raise OptionError(
            f"authorizer is {mode}, and clients prove nothing: set tls, and"
            " tls_client_certificates to required, or client_logins to required"
        )
    is_strict = options.tls_mode is TlsMode.REQUIRED and certificates == ClientCertificates.REQUIRED
    is_strict |= options.login_mode is LoginMode.REQUIRED
    if mode is AuthorizerMode.ENFORCE and not is_strict:
        raise OptionError(
            "authorizer is enforce, and clients that prove nothing could connect: set tls and"
            " tls_client_certificates to required, or client_logins to required, or authorizer to"
            " record"
        )
