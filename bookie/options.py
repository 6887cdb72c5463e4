"""Options of a bookie, and of several bookies on one machine.

Leaves how options are declared and read to `quire.options`, and the defaults of limits to
`bookie.config` and `bookie.server.server_limits`.

Format: the `[bookie]` table of a TOML file. A file for several bookies has one `[[bookie]]` table
per bookie, with at least its `data_dir`, and may have a table `[bookie_defaults]` with shared
options. Variables and flags apply to all bookies of a file; they cannot set what must differ.

`BookieOptions` has one flat field for each option. It takes the defaults of limits from
`StorageConfig` and `ServerLimits`, and `storage` and `server` build these classes from the fields
of the same names.

Invariant: no two bookies of a file share a directory or a port; an error names every wrong table.
"""

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.server.access import AuthorizerMode, RoleOptions
from bookie.server.client_logins import LoginMode
from bookie.server.server_limits import ServerLimits
from metadata.registry.location import UNKNOWN_LOCATION
from metadata.registry.registration import OWNERS_FEATURE, TLS_FEATURE
from metadata.security.client_principals import parse_principals
from metadata.server_options import metadata_option, principals_option, session_timeout_option
from quire.identity.tls import ClientCertificates
from quire.options import (
    BOOKIE_DEFAULTS,
    OptionTable,
    Reading,
    Value,
    option,
    parse_file,
    raise_all,
    switch,
    table_in,
    with_options,
)
from quire.server.overriding import override
from quire.server.server_options import (
    Listener,
    SecurityOptions,
    TlsMode,
    admin_host_option,
    admin_port_option,
    connections_option,
    connections_per_address_option,
    drain_timeout_option,
    host_option,
    port_clashes,
    port_option,
    unreachable,
)

OWN_OPTIONS: Final = ("data_dir", "port", "admin_port")
"""Options that must differ between bookies."""

_GIB: Final = 2**30
_STORAGE: Final = StorageConfig()
_SERVER: Final = ServerLimits()
_FRAME_HEADER_BYTES: Final = 1024
"""Room of a frame for what is not the entry."""


def _check_location(text: str) -> None:
    parts = text.split("/")
    if len(parts) != 4 or parts[0] or not all(parts[1:]):  # noqa: PLR2004 - "", region, rack, host
        raise ValueError(f"it must be /region/rack/host, not {text!r}")


@dataclass(frozen=True, slots=True)
class BookieOptions(SecurityOptions):
    """Options of one bookie. Read them with BOOKIE."""

    data_dir: str = option(
        "", "the directory of all data; log/ and index/ in it may be mounts", is_required=True
    )
    metadata: str = metadata_option()
    host: str = host_option()
    port: int = port_option(0)
    advertised_host: str = option("", "the name that clients connect to; host when empty")
    admin_host: str = admin_host_option()
    admin_port: int = admin_port_option()
    location: str = option(
        UNKNOWN_LOCATION,
        "/region/rack/host: copies of an entry are on different hosts if enough are up; a host"
        " `default` is replaced by the machine's name",
        parse=_check_location,
    )
    weight: int = option(1, "share of new ledgers relative to others", low=0, high=1_000)
    session_timeout_s: float = session_timeout_option(
        "how long the metadata service keeps the registration of a dead bookie"
    )
    position_interval_s: float = option(
        1.0,
        "how often the end of a growing log is recorded in the metadata service, to detect copies",
        low=0.05,
        high=3_600,
    )
    connections_max: int = connections_option(_SERVER.connections_max, 100_000)
    connections_per_address_max: int = connections_per_address_option(100_000)
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
    drain_timeout_s: float = drain_timeout_option(_SERVER.drain_timeout_s, "bookie")
    drain_grace_s: float = option(
        20.0,
        "how long a draining bookie accepts new entries, so that writers leave before",
        low=0,
        high=3_600,
    )
    repair: bool = switch(
        "run a process beside it that repairs ledgers, and is a candidate for the auditor",
        is_on=True,
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
    client_logins: LoginMode = option(
        LoginMode.OFF, "logins of clients with the password of a user (`quire user`)"
    )
    authorizer: AuthorizerMode = option(
        AuthorizerMode.OFF,
        "roles of clients on ledgers; record: new ledgers have owners, and nothing is refused",
    )
    super_users: str = principals_option("principals that may do everything, such as brokers")

    @property
    def roles(self) -> RoleOptions:
        """What the bookie does with the principals of its clients."""
        return RoleOptions(
            self.authorizer, self.principal_rules, parse_principals(self.super_users)
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the registration names."""
        features = {
            TLS_FEATURE: self.tls_mode is TlsMode.OPTIONAL,
            OWNERS_FEATURE: self.authorizer is not AuthorizerMode.OFF,
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

    @override
    def addresses(self) -> Iterable[Listener]:
        """See `ServerOptions`."""
        yield Listener("port", self.host, self.port)
        yield Listener("admin_port", self.admin_host, self.admin_port)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from SecurityOptions.contradictions(self)
        yield from self._unproved_roles()
        yield from self.open_listening("host", self.host)
        yield from self.open_admin(self.admin_host)
        yield from unreachable("advertised_host", self.advertised_host, self.host)
        if self.disk_low_mark > self.disk_high_mark:
            yield (
                f"disk_low_mark is {self.disk_low_mark}, above disk_high_mark,"
                f" {self.disk_high_mark}: lower the first or raise the second"
            )
        if self.clean_bytes_per_s_min > self.clean_bytes_per_s_max:
            yield (
                f"clean_bytes_per_s_min is {self.clean_bytes_per_s_min}, above"
                f" clean_bytes_per_s_max, {self.clean_bytes_per_s_max}: lower the first or raise"
                " the second"
            )
        least = self.entry_bytes_max + _FRAME_HEADER_BYTES
        if least > self.frame_bytes_max:
            yield (
                f"frame_bytes_max is {self.frame_bytes_max}: it must be at least entry_bytes_max"
                f" plus {_FRAME_HEADER_BYTES}, {least}"
            )

    def _unproved_roles(self) -> Iterator[str]:
        mode, certificates = self.authorizer, self.tls_client_certificates
        if mode is AuthorizerMode.OFF:
            return
        has_certificates = self.tls is not TlsMode.OFF and self.takes_certificates
        if not has_certificates and self.client_logins is LoginMode.OFF:
            yield (
                f"authorizer is {mode}, and clients prove nothing: set tls, and"
                " tls_client_certificates to required, or client_logins to required"
            )
            return
        is_strict = self.tls is TlsMode.REQUIRED and certificates is ClientCertificates.REQUIRED
        is_strict |= self.client_logins is LoginMode.REQUIRED
        if mode is AuthorizerMode.ENFORCE and not is_strict:
            yield (
                "authorizer is enforce, and clients that prove nothing could connect: set tls and"
                " tls_client_certificates to required, or client_logins to required, or authorizer"
                " to record"
            )


BOOKIE: Final = OptionTable("bookie", BookieOptions)


def has_several(file_text: str | None) -> bool:
    """Return whether a file configures bookies by `[[bookie]]` tables. Raises OptionError."""
    return isinstance(parse_file(file_text).get(BOOKIE.name), list)


def load_several(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> tuple[BookieOptions, ...]:
    """Return the options of each bookie in a file. Raises OptionError with one line for each
    error.
    """
    readings, problems = read_several(parse_file(file_text), variables, flags)
    raise_all(problems)
    return tuple(reading.options for _, reading in readings)


def read_several(
    document: Mapping[str, object], variables: Mapping[str, str], flags: Mapping[str, Value]
) -> tuple[list[tuple[str, Reading[BookieOptions]]], list[str]]:
    """Return the title and the options of each bookie in a file, and all that is wrong."""
    tables = document.get(BOOKIE.name)
    if not isinstance(tables, list):
        error = "the configuration file has no [[bookie]] tables: write one for each bookie"
        return [], [error]
    defaults = table_in(document, BOOKIE_DEFAULTS)
    problems = list(_shared_errors(defaults, variables, flags))
    readings: list[tuple[str, Reading[BookieOptions]]] = []
    for number, own in enumerate(tables, 1):
        title = f"[[bookie]] {number}"
        if not isinstance(own, dict):
            problems.append(f"{title} is not a table: write [[bookie]]")
            continue
        given = {f"[{BOOKIE_DEFAULTS}]": defaults, title: own}
        reading = BOOKIE.read(given, variables, flags)
        missing = map(BOOKIE.said_missing, reading.missing)
        for text in (*reading.problems, *missing):
            is_located = title in text or BOOKIE_DEFAULTS in text
            problems.append(text if is_located else f"{title}: {text}")
        readings.append((title, reading))
    if len(readings) == len(tables):
        problems += _clashes([(title, read.options) for title, read in readings])
    return readings, list(dict.fromkeys(problems))


def _shared_errors(
    defaults: Mapping[str, object], variables: Mapping[str, str], flags: Mapping[str, Value]
) -> Iterator[str]:
    for name in OWN_OPTIONS:
        variable = BOOKIE.variable_prefix + name.upper()
        places = (
            (f"[{BOOKIE_DEFAULTS}] {name}", name in defaults),
            (variable, variable in variables),
            (BOOKIE.options[name].flag, name in flags),
        )
        for place, is_given in places:
            if is_given:
                yield f"{place} would apply to every bookie: set {name} in each [[bookie]]"


def _clashes(bookies: Sequence[tuple[str, BookieOptions]]) -> Iterator[str]:
    """Yield an error for each table that shares a directory or a port with another."""
    directories: dict[str, str] = {}
    for title, options in bookies:
        first = directories.setdefault(os.path.realpath(options.data_dir), title)
        if options.data_dir and first != title:
            yield f"{title} data_dir is that of {first}: {options.data_dir}"
    yield from port_clashes((title, bind) for title, own in bookies for bind in own.addresses())
