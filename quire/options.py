"""Options: declared once, as the fields of a dataclass, and read from all their sources. Pure.

Leaves the options to the classes that declare them, and opening files to `quire.cli`.

A field that `option` or `switch` creates is the one declaration of an option: its name, type and
default, its bounds, its help, what its value must parse as, and the file that it names. The unit is
part of the name. Flags, variables, files, `quire config` and the reference come from it.

Order of precedence: the flag, the file, the environment variable, the default.

Invariants: every value has its option's type and is within its bounds; all that is wrong is
reported at once; no error shows a text that may be a secret in the place of its file.
"""

import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from quire.copyable import CopyableError

METADATA_VARIABLE: Final = "QUIRE_METADATA"
SERVERS: Final = ("bookie", "broker", "gateway", "console", "zookeeper", "repair")
"""Names of the tables of servers in a configuration file."""
BOOKIE_DEFAULTS: Final = "bookie_defaults"
TABLES: Final = (*SERVERS, BOOKIE_DEFAULTS)
TABLE_IN_FILE: Final = "table in the configuration file"
UNITS: Final = {"s": "s", "ms": "ms", "h": "h", "bytes": "B", "mb": "MiB", "ticks": "ticks"}
"""Units by their words in names of numbers."""

_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")
_KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_WORD: Final = re.compile(r"\w+")

Value = str | int | float | bool | None
ValueT = TypeVar("ValueT", bound=Value)


class OptionError(CopyableError):
    """Options are unknown, of the wrong type, out of bounds, or contradict each other."""

    retriable: ClassVar[bool] = False


class Declared(Protocol):
    """A dataclass whose fields `option` and `switch` create."""

    __dataclass_fields__: ClassVar[dict[str, "Field[Any]"]]


class Options:
    """Base of classes of options that are read from a table."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, "Field[Any]"]]

    def contradictions(self) -> Iterator[str]:
        """Yield what is wrong with the values together, each text with the names of its options."""
        yield from ()


DeclaredT = TypeVar("DeclaredT", bound=Declared)
OptionsT = TypeVar("OptionsT", bound=Options)
ReadT_co = TypeVar("ReadT_co", bound=Options, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of an option besides its name, its type and its default."""

    help: str
    low: float | None = None
    """Least value."""
    above: float | None = None
    """Bound that a value must exceed, in the place of `low`."""
    high: float | None = None
    """Greatest value."""
    parse: Callable[[str], object] | None = None
    """What a text must parse as: it raises ValueError otherwise."""
    read: Callable[[str], object] | None = None
    """Read what the value names, to check it: it raises an error that says what is wrong."""
    is_required: bool = False
    """Whether it must be given."""
    is_file: bool = False
    """Whether the value is the path of a file."""
    is_secret: bool = False
    """Whether the file is a secret, or the value, if it is no file."""
    is_live: bool = False
    """Whether a running server follows a change: of the file, or of the value, if it is none."""
    variable: str = ""
    """Environment variable that several servers share."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str
    kind: type
    """bool, int, float, str, or a StrEnum with the allowed texts."""
    is_optional: bool
    """Whether None is a value."""
    default: Value
    facts: Facts

    @property
    def unit(self) -> str:
        """The unit of a number, from its name; empty for a count, and for other than a number."""
        words = self.name.split("_")
        if self.kind not in (int, float):
            return ""
        for counted, per, unit in zip(words, words[1:], words[2:], strict=False):
            if per == "per" and unit in UNITS:
                return f"{UNITS.get(counted, counted)}/{UNITS[unit]}"
        return next((UNITS[word] for word in words if word in UNITS), "")

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def shown_default(self) -> str:
        """The default as a user gives it; empty for an empty text."""
        return str(self.default).lower() if self.kind is bool else str(self.default)

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts; empty if the kind is no StrEnum."""
        return tuple(self.kind) if issubclass(self.kind, StrEnum) else ()

    @property
    def bounds(self) -> str:
        """What is allowed besides the type, for messages and the reference."""
        low, above, high = self.facts.low, self.facts.above, self.facts.high
        if self.choices:
            text = ", ".join(self.choices)
        elif above is not None:
            text = f"above {above:,}" + ("" if high is None else f", at most {high:,}")
        elif low is not None:
            text = f"at least {low:,}" if high is None else f"{low:,} to {high:,}"
        else:
            return ""
        return f"{text}, or None" if self.is_optional else text

    def parsed(self, text: str, where: str) -> Value:
        """Return the value that a text stands for; `where` is the source. Raises OptionError."""
        if self.is_optional and text.lower() == "none":
            return None
        if self.kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise OptionError(f"{where} must be true or false, not {text!r}")
            return text.lower() in _TRUE
        try:
            value = self.kind(text) if self.kind in (int, float) else text
        except ValueError:
            raise OptionError(f"{where} must be {self._what}, not {text!r}") from None
        return self.typed(value, where)

    def typed(self, value: object, where: str) -> Value:
        """Return a value if it is one of this option. Raises OptionError."""
        if value is None and self.is_optional:
            return None
        if self.choices:
            if value not in self.choices:
                names = ", ".join(self.choices)
                raise OptionError(f"{where} must be one of {names}, not {self._shown(value)}")
            chosen: str = self.kind(value)
            return chosen
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not self.kind or not isinstance(value, str | int | float | bool):
            raise OptionError(f"{where} must be {self._what}, not {self._shown(value)}")
        if not isinstance(value, str) and not self._is_within(value):
            raise OptionError(f"{where} must be {self._said_bounds}, not {value}")
        return value

    def wrong_text(self, value: Value) -> str:
        """Return what is wrong with a text; empty if it parses."""
        if self.facts.parse is None or not isinstance(value, str):
            return ""
        try:
            self.facts.parse(value)
        except ValueError as error:
            return f"{self.name}: {error}"
        return ""

    def _is_within(self, value: float) -> bool:
        low, above, high = self.facts.low, self.facts.above, self.facts.high
        # Written so that NaN is never within bounds.
        if low is None and above is None:
            return True
        is_high_enough = (low is None or value >= low) and (above is None or value > above)
        return is_high_enough and value <= (
            high if high is not None else math.nextafter(math.inf, 0)
        )

    @property
    def _said_bounds(self) -> str:
        low, high = self.facts.low, self.facts.high
        return self.bounds if low is None or high is None else f"from {low} to {high}"

    @property
    def _what(self) -> str:
        return _KINDS[self.kind] + (", or None" if self.is_optional else "")

    def _shown(self, value: object) -> str:
        """Return a value for an error; only its type where it may be a secret, written in the place
        of its file.
        """
        if (self.kind is not str or self.choices) and isinstance(value, str | int | float):
            return repr(value)
        return f"a value of type {type(value).__name__}"


def option(  # noqa: PLR0913 - a keyword for each fact
    default: ValueT,
    text: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    parse: Callable[[str], object] | None = None,
    read: Callable[[str], object] | None = None,
    is_required: bool = False,
    is_secret: bool = False,
    is_live: bool = False,
    variable: str = "",
) -> ValueT:
    """Declare an option with its default and its help; see `Facts` for the others."""
    facts = Facts(
        help=text,
        low=low,
        above=above,
        high=high,
        parse=parse,
        read=read,
        is_required=is_required,
        is_secret=is_secret,
        is_live=is_live,
        variable=variable,
    )
    made: ValueT = field(default=default, metadata={"facts": facts})
    return made


def switch(text: str, *, is_on: bool = False) -> bool:
    """Declare an option that is on or off."""
    return option(is_on, text)


def file_option(
    text: str,
    *,
    read: Callable[[str], object] | None = None,
    is_secret: bool = False,
    is_live: bool = False,
) -> str:
    """Declare an option with the path of a file that a server reads; empty: none."""
    facts = Facts(help=text, read=read, is_file=True, is_secret=is_secret, is_live=is_live)
    made: str = field(default="", metadata={"facts": facts})
    return made


def described(kind: type[Declared]) -> Mapping[str, Option]:
    """Return the options of a class by name: its own first, then those of its bases."""
    by_name = {one_field.name: one_field for one_field in fields(kind)}
    names = (name for base in kind.__mro__ for name in getattr(base, "__annotations__", ()))
    return {name: _option_of(by_name[name]) for name in dict.fromkeys(names) if name in by_name}


def _option_of(declared: "Field[Any]") -> Option:
    kind, is_optional = declared.type, False
    if isinstance(kind, types.UnionType):
        (kind,) = (argument for argument in typing.get_args(kind) if argument is not types.NoneType)
        is_optional = True
    assert isinstance(kind, type), f"{declared.name} has a type of a value"
    default: Any = declared.default
    return Option(declared.name, kind, is_optional, default, declared.metadata["facts"])


def check_values(declared: Declared) -> None:
    """Raise ValueError if a value is none of its option."""
    for name, spec in described(type(declared)).items():
        try:
            spec.typed(getattr(declared, name), name)
        except OptionError as error:
            raise ValueError(str(error)) from None


def with_options(config: DeclaredT, options: Declared) -> DeclaredT:
    """Return `config` with the values of the options that are named like its fields."""
    names = [own.name for own in fields(config) if own.name in options.__dataclass_fields__]
    return replace(config, **{name: getattr(options, name) for name in names})


@dataclass(frozen=True, slots=True)
class Reading(Generic[ReadT_co]):
    """Options of one table as they were read."""

    options: ReadT_co
    """The values; the default of each that is wrong or missing."""
    origins: Mapping[str, str]
    """Where each value comes from that is not the default: a flag, a file or a variable."""
    problems: tuple[str, ...]
    """Everything that is wrong, but what is missing."""
    wrong: frozenset[str]
    """Options whose values are refused."""
    missing: tuple[str, ...]
    """Required options that are not given."""


@dataclass(frozen=True, slots=True)
class OptionTable(Generic[OptionsT]):
    """The options of one kind of server: the name of the table, and the class."""

    name: str
    kind: type[OptionsT]
    options: Mapping[str, Option] = field(init=False)
    """The options by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", described(self.kind))

    @property
    def variable_prefix(self) -> str:
        """What the server's own variables begin with."""
        return f"QUIRE_{self.name.upper()}_"

    def load(
        self, file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
    ) -> OptionsT:
        """Read all sources. Raises OptionError with one line for each error."""
        reading = self.read(self.in_file(parse_file(file_text)), variables, flags)
        raise_all((*reading.problems, *map(self.said_missing, reading.missing)))
        return reading.options

    def in_file(self, document: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
        """Return the table in a file by its title. Raises OptionError."""
        return {f"[{self.name}]": table_in(document, self.name)}

    def read(
        self,
        tables: Mapping[str, Mapping[str, object]],
        variables: Mapping[str, str],
        flags: Mapping[str, Value],
    ) -> Reading[OptionsT]:
        """Read all sources. `tables` are those of a file by their titles; later ones override
        earlier ones.
        """
        values, origins, problems = dict[str, Value](), dict[str, str](), list[str]()
        wrong = set[str]()
        for origin, name, read in self._sources(tables, variables, flags):
            try:
                values[name] = read()
                origins[name] = origin
            except OptionError as error:
                problems.append(str(error))
                wrong.add(name)
        for name, value in values.items():
            text = self.options[name].wrong_text(value)
            if text:
                problems.append(text)
                wrong.add(name)
        options = replace(self.kind(), **{k: v for k, v in values.items() if k not in wrong})
        # A contradiction of a value that is wrong itself may be none.
        problems += (
            text for text in options.contradictions() if wrong.isdisjoint(_WORD.findall(text))
        )
        missing = tuple(
            name
            for name, spec in self.options.items()
            if spec.facts.is_required and name not in wrong and not getattr(options, name)
        )
        return Reading(options, origins, tuple(dict.fromkeys(problems)), frozenset(wrong), missing)

    def said_missing(self, name: str) -> str:
        """Return the error for a required option that is not given."""
        return f"{name} is not set: give {self.options[name].flag}, or {name} in the file"

    def flags_of(self, options: OptionsT) -> list[str]:
        """Return the flags that set exactly these options."""
        flags: list[str] = []
        for name, spec in self.options.items():
            value = getattr(options, name)
            if value == spec.default:
                continue
            if spec.kind is bool:
                flags.append(spec.flag if value else f"--no-{spec.flag.removeprefix('--')}")
            else:
                flags.append(f"{spec.flag}={value}")
        return flags

    def _sources(
        self,
        tables: Mapping[str, Mapping[str, object]],
        variables: Mapping[str, str],
        flags: Mapping[str, Value],
    ) -> Iterator[tuple[str, str, Callable[[], Value]]]:
        """Yield the origin, the name and the reader of each given value, in ascending order of
        precedence.
        """
        prefix, options = self.variable_prefix, self.options
        for name, spec in options.items():
            own = prefix + name.upper()
            variable = own if own in variables else spec.facts.variable
            if variable in variables:
                yield variable, name, partial(spec.parsed, variables[variable], variable)
        known = [prefix + name.upper() for name in options]
        for variable in variables:
            if variable.startswith(prefix) and variable not in known:
                yield _unknown(variable, known, "environment variable")
        for title, table in tables.items():
            for name, value in table.items():
                if name in options:
                    yield title, name, partial(options[name].typed, value, f"{title} {name}")
                else:
                    yield _unknown(name, list(options), f"option in {title}")
        for name, value in flags.items():
            if name in options:
                flag = options[name].flag
                yield flag, name, partial(options[name].typed, value, flag)
            else:
                yield _unknown(name, list(options), "option")


def _unknown(name: str, names: Sequence[str], what: str) -> tuple[str, str, Callable[[], Value]]:
    return "", name, partial(known_name, name, names, what)


def raise_all(problems: Collection[str]) -> None:
    """Raise OptionError with one line for each problem, if there are any."""
    if problems:
        raise OptionError("\n".join(dict.fromkeys(problems)))


def parse_file(text: str | None) -> Mapping[str, object]:
    """Return the tables of a configuration file by their names. Raises OptionError."""
    document = parse_toml(text or "")
    for name in document:
        known_name(name, TABLES, TABLE_IN_FILE)
    return document


def parse_toml(text: str) -> Mapping[str, object]:
    """Return the tables of a file, also unknown ones. Raises OptionError."""
    import tomllib  # noqa: PLC0415 - clients read no file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"the configuration file is not TOML: {error}") from None


def table_in(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return one table of a file; an empty one if it is missing. Raises OptionError."""
    table = document.get(name, {})
    if not isinstance(table, dict):
        text = f"{name} in the configuration file is not a table: write [{name}]"
        raise OptionError(text)
    return table


def known_name(name: str, names: Sequence[str], what: str) -> str:
    """Return a name that is in `names`. Raises OptionError, which names the nearest one."""
    if name in names:
        return name
    import difflib  # noqa: PLC0415 - only an error needs it

    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
    raise OptionError(f"unknown {what}: {name}; {hint}")
