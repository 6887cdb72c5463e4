"""Fields of a row as people read them. The name of a field says its unit.

Leaves the layout of rows to `quire.cli.output`, and JSON, which has the plain numbers.

Format: a point in time ends with `_ms` and is in TIMES; 0 is none. A duration is in DURATIONS. A
number of bytes has the word `bytes` in its name, or is a `length`. The unit is part of the text, so
it is not part of the heading.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from quire.cli.quantities import describe_bytes, describe_duration, describe_time

NOTHING: Final = "-"
TIMES: Final = frozenset(
    {
        "accepted_ms",
        "audited_ms",
        "began_ms",
        "created_ms",
        "ended_ms",
        "lifecycle_since_ms",
        "paused_until_ms",
        "published_ms",
        "since_ms",
        "stopped_ms",
        "time_ms",
        "taken_ms",
        "written_ms",
    }
)
DURATIONS: Final = frozenset({"estimate_s", "eta_s", "for_s", "lost_in_s"})
_PER_SECOND: Final = "_per_s"
_LENGTH: Final = "length"


def heading(name: str) -> str:
    """Return the heading of a field, in lower case."""
    if name in TIMES:
        name = name.removesuffix("_ms")
    elif name in DURATIONS:
        name = name.removesuffix("_s")
    return name.replace("_", " ")


def describe_field(name: str, value: object) -> str:
    """Return a field's value as a person reads it."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int() if name in TIMES:
            return describe_time(value) if value else NOTHING
        case int() | float() if name in DURATIONS:
            return describe_duration(value)
        case int() if _is_bytes(name):
            return describe_bytes(value) + ("/s" if _PER_SECOND in name else "")
        case float():
            return f"{value:,.2f}"
        case str() | int():
            return str(value)
        case Mapping():
            pairs = (f"{each}={describe_field(each, value[each])}" for each in value)
            return ", ".join(pairs) or NOTHING
        case Sequence():
            return ", ".join(describe_field(name, each) for each in value) or NOTHING
        case _:
            return str(value)


def _is_bytes(name: str) -> bool:
    return name == _LENGTH or "bytes" in name.split("_")
