"""HTML of the console from the templates beside this module.

Leaves what a page shows to `pages/`.

Invariants: every value is escaped where it is put in; a template that uses a value it was not given
fails.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from quire.cli.fields import describe_field, heading
from quire.cli.quantities import describe_bytes, describe_duration, describe_time

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
            "heading": heading,
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
