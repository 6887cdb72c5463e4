"""HTML of the console from the templates beside this module, and pages of long lists."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from metadata.ledgers.copies import Copies
from quire.operate.fields import (
    KIBIBYTE,
    describe_bytes,
    describe_duration,
    describe_field,
    describe_time,
    heading,
)

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"
NOTHING: Final = "–"
NAMES: Final = frozenset({"class", "id", "ledger"})
"""Fields whose numbers are names."""
SETTING_MAX: Final = 2**63 - 1
"""Value of a topic's setting that is no limit."""
MS_PER_S: Final = 1_000
DIGITS_UNTIL_MS: Final = 100
TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".css": "text/css",
        ".js": "text/javascript",
        ".svg": "image/svg+xml",
        ".txt": "text/plain",
    }
)
"""Content types of the files in `static/`; other files are not served."""
_HASH_CHARACTERS: Final = 12
_COMMAND: Final = re.compile(r"`([^`]+)`")
_SUBJECT: Final = re.compile(r"(ledger|bookie) (\S+)")


class StaticFile(NamedTuple):
    """A file that browsers keep: its address changes with its content."""

    data: bytes
    content_type: str
    version: str


def load_static() -> dict[str, StaticFile]:
    """Read the static files, by their names."""
    files = {}
    for path in sorted(STATIC.iterdir()):
        if path.suffix in TYPES:
            data = path.read_bytes()
            version = sha256(data).hexdigest()[:_HASH_CHARACTERS]
            files[path.name] = StaticFile(data, TYPES[path.suffix], version)
    return files


def with_commands(text: str) -> Markup:
    """Return a text in which what is between backticks is a command."""
    parts = _COMMAND.split(text)  # every second one was between backticks
    shown = (
        f"<code>{escape(part)}</code>" if n % 2 else escape(part) for n, part in enumerate(parts)
    )
    return Markup("").join(map(Markup, shown))


def subject_link(base_path: str, where: str) -> Markup:
    """Return where a problem is, as a link if that is one ledger or one bookie."""
    match = _SUBJECT.fullmatch(where)
    if match is None:
        return escape(where)
    kind, name = match.groups()
    address = f"{base_path}/{kind}s/{quote(name, safe='')}"
    return Markup('<a href="{}">{}</a>').format(address, where)


def counted_field(value: object, name: str) -> str:
    """Return a field as a person reads it; a number that is no name has separators."""
    said = describe_field(name, value)
    is_count = isinstance(value, int) and said == str(value) and name not in NAMES
    return f"{value:,}" if is_count else said


def with_unit(value: str, name: str) -> Markup:
    """Return the value of a topic's setting, and what it is in larger units if its name has one."""
    if not value.removeprefix("-").isdecimal():
        return escape(value)
    number, unit = int(value), name.rpartition(".")[2]
    larger = ""
    if number == SETTING_MAX:
        larger = "no limit"
    elif unit == "ms" and number >= MS_PER_S:
        larger = describe_duration(number / MS_PER_S)
    elif unit == "bytes" and number >= KIBIBYTE:
        larger = describe_bytes(number)
    shown = Markup("{:,}").format(number)
    return shown + Markup(' <span class="quiet">{}</span>').format(larger) if larger else shown


def describe_milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, with as many digits as it is worth."""
    ms = seconds * MS_PER_S
    return f"{ms:,.0f} ms" if ms >= DIGITS_UNTIL_MS else f"{ms:.3g} ms"


def copies_text(copies: Copies | None) -> str:
    """Return how many copies the entries of a ledger have that have the fewest."""
    if copies is None:
        return "no entries"
    return f"{copies.certain} certain, {copies.possible} at most"


class Templates:
    """Templates of a console that is served below a path.

    Every value is escaped where it is put in; a template that uses a value it was not given fails.
    """

    def __init__(self, base_path: str, static: Mapping[str, StaticFile]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "size": lambda count: NOTHING if count is None else describe_bytes(count),
            "duration": lambda s: NOTHING if s is None else describe_duration(s),
            "time": lambda ms: NOTHING if ms is None else describe_time(ms),
            "count": lambda number: NOTHING if number is None else f"{number:,}",
            "field": counted_field,
            "setting": with_unit,
            "milliseconds": describe_milliseconds,
            "copies": copies_text,
            "heading": lambda name: heading(name).capitalize(),
            "commands": with_commands,
            "subject": lambda where: subject_link(base_path, where),
            "plural": lambda number, noun: f"{number:,} {noun}{'' if number == 1 else 's'}",
        }
        self._environment.globals |= {
            "base": base_path,
            "url": lambda path: base_path + path,
            "static": lambda name: f"{base_path}/static/{name}?v={static[name].version}",
            "nothing": NOTHING,
        }

    def render(self, name: str, values: Mapping[str, object]) -> str:
        """Return the HTML of a page."""
        return self._environment.get_template(name).render(values)


ROWS_PER_PAGE: Final = 100
NUMBER_DIGITS_MAX: Final = 19

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    """One page of a list.

    A number that is there and wrong is refused by `asked_number`, and never read as the default: a
    change would do something else than was asked for.
    """

    rows: Sequence[RowT]
    start: int
    """Key from which it was read."""
    next_start: int | None
    """Key from which the next page begins; None if this is the last one."""


def number_of(text: str | None, default: int, most: int) -> int:
    """Return the number in a query; the default for anything else than a number up to `most`."""
    if not text or not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX):
        return default
    return min(int(text), most)


def slice_of(rows: Sequence[RowT], start: int) -> Page[RowT]:
    """Return the page of a complete list that begins at a position."""
    end = start + ROWS_PER_PAGE
    return Page(rows[start:end], start, end if end < len(rows) else None)


_ODD = -1


def asked_number(fields: Mapping[str, object], name: str, default: int, most: int) -> int:
    """Return a number of a query or a form, at most `most`; the default if it is not there or
    empty. Raises HTTPBadRequest for anything else.
    """
    text = str(fields.get(name, "")).strip()
    if not text:
        return default
    number = number_of(text, _ODD, most)
    if number == _ODD:
        raise web.HTTPBadRequest(text=f"{name} must be a whole number from 0 to {most}")
    return number
