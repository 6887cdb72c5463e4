"""Options from a TOML table, environment variables and flags, with checks of each value.

Leaves the list of options to `bookie.options` and `broker_layer.options`, and opening the file to
`quire`.

Invariant: every returned value has its option's type and is within its bounds.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from typing import ClassVar, Final, Protocol, TypeVar

from quire.server.errors import OptionError

TABLES: Final = (
    "bookie",
    "bookie_defaults",
    "broker",
    "client",
    "console",
    "gateway",
    "repair",
    "zookeeper",
)
TABLE_IN_FILE: Final = "table in the configuration file"
METADATA_VARIABLE: Final = "QUIRE_METADATA"
METADATA_DEFAULT: Final = "zk://127.0.0.1:2181/quire"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")
VARIABLE: Final = "environment variable"

Value = str | int | float | bool
ValueT = TypeVar("ValueT", bound=Value)
ConfigT = TypeVar("ConfigT", bound="Options")


class Options(Protocol):
    """A dataclass whose fields are created by `option`."""

    __dataclass_fields__: ClassVar[dict[str, "Field[object]"]]


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """Description of one option, for `quire config` and for messages."""

    name: str
    kind: type
    default: Value
    low: float | None
    high: float | None
    help: str


@dataclass(frozen=True, slots=True)
class OptionTable:
    """Options of a server: the name of its table, the prefix of its variables, and the options."""

    name: str
    variable_prefix: str
    options: Mapping[str, OptionInfo]


def option(
    default: ValueT, text: str, *, low: float | None = None, high: float | None = None
) -> ValueT:
    """Create the dataclass field of an option."""
    made: ValueT = field(default=default, metadata={"help": text, "low": low, "high": high})
    return made


def describe_options(defaults: Options) -> dict[str, OptionInfo]:
    """Return the description of each field, in order."""
    described = {}
    for each in fields(defaults):
        name, data, default = each.name, each.metadata, getattr(defaults, each.name)
        described[name] = OptionInfo(
            name, type(default), default, data["low"], data["high"], data["help"]
        )
    return described


def with_options(config: ConfigT, options: Options) -> ConfigT:
    """Return `config` with the values of the options that are named like its fields."""
    names = [each.name for each in fields(config) if each.name in options.__dataclass_fields__]
    return replace(config, **{name: getattr(options, name) for name in names})


def check_log_level(level: str) -> None:
    """Raise OptionError if the level is unknown."""
    if level not in LOG_LEVELS:
        raise OptionError(f"log_level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")


def check_all(*checks: Callable[[], object]) -> None:
    """Make every check. Raises OptionError with one line for each error."""
    errors = []
    for check in checks:
        try:
            check()
        except OptionError as error:
            errors.append(str(error))
    if errors:
        raise OptionError("\n".join(dict.fromkeys(errors)))


def read_options(
    table: OptionTable,
    file_text: str | None,
    variables: Mapping[str, str],
    flags: Mapping[str, Value],
) -> dict[str, Value]:
    """Merge the three sources; later ones override earlier ones. Raises OptionError."""
    given = table_of(parse_file(file_text), table.name)
    return merge_options(table, {f"[{table.name}]": given}, variables, flags)


def merge_options(
    table: OptionTable,
    given: Mapping[str, Mapping[str, object]],
    variables: Mapping[str, str],
    flags: Mapping[str, Value],
) -> dict[str, Value]:
    """Merge the tables of a file (keyed by their names in messages), variables and flags; later
    ones override earlier ones. Raises OptionError with one line for each error.
    """
    options, values = table.options, dict[str, Value]()
    prefix = table.variable_prefix

    def read_file(title: str, name: str, value: object) -> None:
        known = known_name(name, list(options), f"option in {title}")
        values[known] = _typed(options[known], value, f"{title} {name}")

    def read_variable(name: str, text: str) -> None:
        if name not in options:
            known_name(prefix + name.upper(), [prefix + each.upper() for each in options], VARIABLE)
        values[name] = _parsed(options[name], text, prefix + name.upper())

    def read_flag(name: str, value: Value) -> None:
        known = known_name(name, list(options), "option")
        values[known] = _typed(options[known], value, f"--{name.replace('_', '-')}")

    steps = [
        *(
            partial(read_file, title, *each)
            for title, content in given.items()
            for each in content.items()
        ),
        *(partial(read_variable, *each) for each in _own_variables(table, variables).items()),
        *(partial(read_flag, *each) for each in flags.items()),
    ]
    check_all(*steps)
    return values


def parse_file(text: str | None) -> Mapping[str, object]:
    """Return the tables of a configuration file by their names. Raises OptionError."""
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"the configuration file is not TOML: {error}") from None
    for name in document:
        known_name(name, TABLES, "table in the configuration file")
    return document


def table_of(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return one table of a file; an empty one if it is missing. Raises OptionError."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        text = f"{name} in the configuration file is not a table: write [{name}]"
        raise OptionError(text)
    return found


def _own_variables(table: OptionTable, variables: Mapping[str, str]) -> dict[str, str]:
    own = {}
    if METADATA_VARIABLE in variables and "metadata" in table.options:
        own["metadata"] = variables[METADATA_VARIABLE]
    for variable, text in variables.items():
        if variable.startswith(table.variable_prefix):
            own[variable.removeprefix(table.variable_prefix).lower()] = text
    return own


def known_name(name: str, names: Sequence[str], what: str) -> str:
    """Return a name that is in `names`. Raises OptionError, which names the nearest one."""
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
    raise OptionError(f"unknown {what}: {name}; {hint}")


def _typed(info: OptionInfo, value: object, where: str) -> Value:
    if info.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not info.kind or not isinstance(value, str | int | float | bool):
        raise OptionError(f"{where} must be {_kind_name(info)}, not {_shown(info, value)}")
    if isinstance(value, str):
        return value
    low, high = info.low, info.high
    # Written so that NaN fails both.
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


def _shown(info: OptionInfo, value: object) -> str:
    """Return a value of a wrong type for an error; only its type where it may be a secret, written
    in the place of its file.
    """
    if info.kind is not str and isinstance(value, str | int | float):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def _kind_name(info: OptionInfo) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names[info.kind]
