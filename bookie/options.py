"""Says how one bookie is configured: every option with its default, its bounds and its meaning.

Leaves opening the file to `bookie.main` and flags' names on the command line to `quire`.

Format: the `[bookie]` table of a TOML file; above it `QUIRE_BOOKIE_<OPTION>` and `QUIRE_METADATA`;
above them flags. Other tables of the file belong to other servers and are not looked at.

Invariant: a value that gets out of here is of its option's type and within its bounds.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

from bookie.errors import OptionError

TABLE: Final = "bookie"
TABLES_OF_OTHERS: Final = ("broker", "client", "console", "repair")
VARIABLE_PREFIX: Final = "QUIRE_BOOKIE_"
METADATA_VARIABLE: Final = "QUIRE_METADATA"

_PORT_MAX: Final = 65_535
_GIB: Final = 2**30
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")

Value = str | int | float | bool
ValueT = TypeVar("ValueT", bound=Value)


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option, for `quire config` and for messages."""

    name: str
    kind: type
    default: Value
    low: float | None
    high: float | None
    help: str


def _option(
    default: ValueT, text: str, *, low: float | None = None, high: float | None = None
) -> ValueT:
    made: ValueT = field(default=default, metadata={"help": text, "low": low, "high": high})
    return made


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """Everything that can be set for one bookie. Build it with `load_options`."""

    data_dir: str = _option("", "where everything is kept; its log and index may be mounts")
    metadata: str = _option("zk://127.0.0.1:2181/quire", "the cluster's metadata service")
    host: str = _option("127.0.0.1", "the address to listen on")
    port: int = _option(0, "the port to listen on; 0: the kernel chooses", low=0, high=_PORT_MAX)
    advertised_host: str = _option("", "the name that clients connect to; host when empty")
    admin_host: str = _option("127.0.0.1", "the address of the admin HTTP server")
    admin_port: int = _option(0, "its port; 0: the kernel chooses", low=0, high=_PORT_MAX)
    location: str = _option("/default/default/default", "/region/rack/host, for placement")
    weight: int = _option(1, "share of new ledgers relative to others", low=0, high=1_000)
    session_timeout_s: float = _option(
        10.0,
        "how long the metadata service keeps the registration of a dead bookie",
        low=1,
        high=300,
    )
    connections_max: int = _option(1_000, "connections at once", low=1, high=100_000)
    frame_bytes_max: int = _option(
        16 * 2**20, "largest frame accepted", low=64 * 2**10, high=16 * 2**20
    )
    entry_bytes_max: int = _option(8 * 2**20, "largest entry accepted", low=1, high=15 * 2**20)
    read_bytes_max: int = _option(
        8 * 2**20, "largest answer to one read", low=2**16, high=15 * 2**20
    )
    long_polls_max: int = _option(100_000, "long polls waiting at once", low=1, high=10_000_000)
    drain_timeout_s: float = _option(
        10.0, "how long a stopping bookie waits for requests under way", low=0, high=600
    )
    collect_interval_s: float = _option(
        600.0,
        "a full pass over own ledgers for deleted ones takes at least this",
        low=1,
        high=86_400,
    )
    collect_reads_per_s: int = _option(
        50, "metadata reads per second while looking for deleted ledgers", low=1, high=10_000
    )
    disk_high_mark: float = _option(
        0.95, "share of the disk in use at which the bookie becomes read-only", low=0.1, high=1.0
    )
    disk_low_mark: float = _option(
        0.92, "share below which it becomes writable again", low=0.05, high=1.0
    )
    reserve_bytes_min: int = _option(
        256 * 2**20,
        "least room kept for fences and the index on a full disk",
        low=0,
        high=1024 * _GIB,
    )
    reserve_share: float = _option(
        0.01, "share of the whole disk kept so, if that is more", low=0.0, high=0.5
    )
    segment_bytes_max: int = _option(256 * 2**20, "size of a log file", low=2**16, high=2 * _GIB)
    queue_bytes_max: int = _option(
        64 * 2**20, "accepted and not yet durable; beyond it nothing is read", low=2**20, high=_GIB
    )
    recent_bytes_max: int = _option(
        32 * 2**20, "recent entries kept in memory for tailing readers", low=0, high=64 * _GIB
    )
    cached_bytes_max: int = _option(
        0, "the end of each log file left in the system's page cache", low=0, high=2 * _GIB
    )
    die_with_parent: bool = _option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = _option("info", "debug, info, warning or error")


_DEFAULTS: Final = BookieOptions()
OPTIONS: Final[dict[str, OptionInfo]] = {
    each.name: OptionInfo(
        each.name,
        type(getattr(_DEFAULTS, each.name)),
        getattr(_DEFAULTS, each.name),
        each.metadata["low"],
        each.metadata["high"],
        each.metadata["help"],
    )
    for each in fields(BookieOptions)
}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> BookieOptions:
    """Merge the file's text, environment variables and flags, in ascending order. Raises
    OptionError.
    """
    values: dict[str, Value] = {}
    for name, value in _from_file(file_text).items():
        info = _known(name, list(OPTIONS), f"option in [{TABLE}]")
        values[info] = _typed(OPTIONS[info], value, f"[{TABLE}] {name}")
    for variable, text in _own_variables(variables).items():
        values[variable] = _parsed(OPTIONS[variable], text, f"{VARIABLE_PREFIX}{variable.upper()}")
    for name, value in flags.items():
        info = _known(name, list(OPTIONS), "option")
        values[info] = _typed(OPTIONS[info], value, f"--{name.replace('_', '-')}")
    options = BookieOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    _check_together(options)
    return options


def _from_file(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"the configuration file is not TOML: {error}") from None
    for name in document:
        if name not in TABLES_OF_OTHERS:
            _known(name, [TABLE, *TABLES_OF_OTHERS], "table in the configuration file")
    table = document.get(TABLE, {})
    if not isinstance(table, dict):
        raise OptionError(f"{TABLE} in the configuration file is not a table: write [{TABLE}]")
    return table


def _own_variables(variables: Mapping[str, str]) -> dict[str, str]:
    own = {}
    if METADATA_VARIABLE in variables:
        own["metadata"] = variables[METADATA_VARIABLE]
    known = [VARIABLE_PREFIX + name.upper() for name in OPTIONS]
    for variable, text in variables.items():
        if variable.startswith(VARIABLE_PREFIX):
            _known(variable, known, "environment variable")
            own[variable.removeprefix(VARIABLE_PREFIX).lower()] = text
    return own


def _known(name: str, names: Sequence[str], what: str) -> str:
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
    raise OptionError(f"unknown {what}: {name}; {hint}")


def _typed(info: OptionInfo, value: object, where: str) -> Value:
    if info.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not info.kind or not isinstance(value, str | int | float | bool):
        raise OptionError(f"{where} must be {_kind_name(info)}, not {value!r}")
    if isinstance(value, str):
        return value
    low, high = info.low, info.high
    # Written so that "not a number" fails both.
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise OptionError(f"{where} must be from {low} to {high}, not {value}")
    return value


def _parsed(info: OptionInfo, text: str, where: str) -> Value:
    if info.kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise OptionError(f"{where} must be true or false, not {text!r}")
        return text.lower() in _TRUE
    try:
        value: Value = info.kind(text)
    except ValueError:
        raise OptionError(f"{where} must be {_kind_name(info)}, not {text!r}") from None
    return _typed(info, value, where)


def _kind_name(info: OptionInfo) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names[info.kind]


def _check_together(options: BookieOptions) -> None:
    if not options.data_dir:
        raise OptionError("data_dir is not set: give --data-dir, or data_dir in the file")
    if options.log_level not in LOG_LEVELS:
        raise OptionError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
    if options.disk_low_mark > options.disk_high_mark:
        raise OptionError("disk_low_mark must not be above disk_high_mark")
    if options.entry_bytes_max + 1024 > options.frame_bytes_max:
        raise OptionError("frame_bytes_max must exceed entry_bytes_max by at least 1024")
    parts = options.location.split("/")
    if len(parts) != 4 or parts[0] or not all(parts[1:]):  # noqa: PLR2004 - "", region, rack, host
        raise OptionError(f"location must be /region/rack/host, not {options.location!r}")
