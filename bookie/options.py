"""Options of one bookie, each with its default, its bounds and its meaning.

Leaves opening the file and the names of flags to `quire`, and reading values to
`serving.option_reading`.

Format: the `[bookie]` table of a TOML file; `QUIRE_BOOKIE_<OPTION>` and `QUIRE_METADATA` override
it; flags override both. Other tables of the file belong to other servers and are ignored.

Invariant: every returned value has its option's type and is within its bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata.registry.location import UNKNOWN_LOCATION
from serving.errors import OptionError
from serving.option_reading import (
    OptionTable,
    Value,
    check_log_level,
    describe_options,
    option,
    read_options,
)

TABLE: Final = "bookie"
VARIABLE_PREFIX: Final = "QUIRE_BOOKIE_"

_PORT_MAX: Final = 65_535
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """Options of one bookie. Build it with `load_options`."""

    data_dir: str = option("", "the directory of all data; log/ and index/ in it may be mounts")
    metadata: str = option("zk://127.0.0.1:2181/quire", "the cluster's metadata service")
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
        10.0,
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
        1_000, "maximum number of client connections", low=1, high=100_000
    )
    frame_bytes_max: int = option(
        16 * 2**20, "largest frame accepted", low=64 * 2**10, high=16 * 2**20
    )
    entry_bytes_max: int = option(8 * 2**20, "largest entry accepted", low=1, high=15 * 2**20)
    read_bytes_max: int = option(
        8 * 2**20, "largest answer to one read", low=2**16, high=15 * 2**20
    )
    long_polls_max: int = option(
        100_000, "maximum number of waiting long polls", low=1, high=10_000_000
    )
    drain_timeout_s: float = option(
        10.0, "how long a stopping bookie waits for running requests", low=0, high=600
    )
    collect_interval_s: float = option(
        600.0,
        "minimum time of a full pass over stored ledgers that looks for deleted ones",
        low=1,
        high=86_400,
    )
    collect_reads_per_s: int = option(
        50, "metadata reads per second while looking for deleted ledgers", low=1, high=10_000
    )
    disk_hung_s: float = option(
        30.0,
        "a write or sync that takes longer counts as a hung disk, and the bookie deregisters",
        low=0.1,
        high=3_600,
    )
    disk_high_mark: float = option(
        0.95, "share of the disk in use at which the bookie becomes read-only", low=0.1, high=1.0
    )
    disk_low_mark: float = option(
        0.92, "share below which it becomes writable again", low=0.05, high=1.0
    )
    reserve_bytes_min: int = option(
        256 * 2**20,
        "space reserved for fences, deletions and the index; that for one log file is added",
        low=0,
        high=1024 * _GIB,
    )
    reserve_share: float = option(
        0.01, "share of the disk to reserve instead, if that is more", low=0.0, high=0.5
    )
    capacity_bytes: int = option(
        0, "use at most this much of the disk; 0: all of it", low=0, high=1024 * 1024 * _GIB
    )
    disk_check_interval_s: float = option(
        5.0, "how often the free space of the disks is measured", low=0.1, high=300
    )
    clean_interval_s: float = option(
        60.0, "how often cleaning looks for work when it has none", low=0.1, high=86_400
    )
    clean_live_share_max: float = option(
        0.5, "log files with a smaller share of live bytes are rewritten", low=0.0, high=0.9
    )
    clean_bytes_per_s_min: int = option(
        16 * 2**20, "rate of cleaning when little is due", low=2**16, high=_GIB
    )
    clean_bytes_per_s_max: int = option(
        128 * 2**20,
        "rate of cleaning when much is due or the disk is nearly full",
        low=2**16,
        high=16 * _GIB,
    )
    checkpoint_log_bytes: int = option(
        256 * 2**20, "bytes of log between two checkpoints", low=2**16, high=16 * _GIB
    )
    checkpoint_records: int = option(
        100_000, "maximum number of records between two checkpoints", low=1_000, high=10_000_000
    )
    checkpoint_ledgers: int = option(
        25_000,
        "maximum number of changed ledgers between two checkpoints",
        low=1_000,
        high=10_000_000,
    )
    segment_bytes_max: int = option(256 * 2**20, "size of a log file", low=2**16, high=2 * _GIB)
    queue_bytes_max: int = option(
        64 * 2**20,
        "maximum of accepted bytes not yet durable; above it, no requests are read",
        low=2**20,
        high=_GIB,
    )
    recent_bytes_max: int = option(
        32 * 2**20, "recent entries kept in memory for tailing readers", low=0, high=64 * _GIB
    )
    cached_bytes_max: int = option(
        0, "size of each log file's end that stays in the system's page cache", low=0, high=2 * _GIB
    )
    tombstones_max: int = option(
        100_000, "maximum number of deleted ledger ids stored individually", low=0, high=100_000_000
    )
    feed_age_h: float = option(
        24.0, "age at which entries of the deletion feed are removed", low=0.01, high=8_760
    )
    hot_ledgers_max: int = option(
        20_000, "maximum number of unchanged ledger states in memory", low=1, high=10_000_000
    )
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")


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
    if options.disk_low_mark > options.disk_high_mark:
        raise OptionError("disk_low_mark must not be above disk_high_mark")
    if options.clean_bytes_per_s_min > options.clean_bytes_per_s_max:
        raise OptionError("clean_bytes_per_s_min must not be above clean_bytes_per_s_max")
    if options.entry_bytes_max + 1024 > options.frame_bytes_max:
        raise OptionError("frame_bytes_max must exceed entry_bytes_max by at least 1024")
    parts = options.location.split("/")
    if len(parts) != 4 or parts[0] or not all(parts[1:]):  # noqa: PLR2004 - "", region, rack, host
        raise OptionError(f"location must be /region/rack/host, not {options.location!r}")
