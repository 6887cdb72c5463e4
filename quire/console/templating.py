"""HTML of the console from the templates beside this module.

Leaves what a page shows to `pages/`.

Invariants: every value is escaped where it is put in; a template that uses a value it was not given
fails.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from quire.operate.fields import (
    describe_bytes,
    describe_duration,
    describe_field,
    describe_time,
    heading,
)

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"
NOTHING: Final = "–"
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
    found = {}
    for path in sorted(STATIC.iterdir()):
        if path.suffix in TYPES:
            data = path.read_bytes()
            version = sha256(data).hexdigest()[:_HASH_CHARACTERS]
            found[path.name] = StaticFile(data, TYPES[path.suffix], version)
    return found


def with_commands(text: str) -> Markup:
    """Return a text in which what is between backticks is a command."""
    parts = _COMMAND.split(text)  # every second one was between backticks
    shown = (
        f"<code>{escape(part)}</code>" if n % 2 else escape(part) for n, part in enumerate(parts)
    )
    return Markup("").join(map(Markup, shown))


def subject_link(base_path: str, where: str) -> Markup:
    """Return where a problem is, as a link if that is one ledger or one bookie."""
    found = _SUBJECT.fullmatch(where)
    if found is None:
        return escape(where)
    kind, name = found.groups()
    address = f"{base_path}/{kind}s/{quote(name, safe='')}"
    return Markup('<a href="{}">{}</a>').format(address, where)


class Templates:
    """Templates of a console that is served below a path."""

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
            "field": lambda value, name: describe_field(name, value),
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
