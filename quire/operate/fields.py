r"""Values as JSON, and fields of a row as people read them. The name of a field says its unit.

Format: a point in time ends with `_ms` and is in TIMES; 0 is none. A duration is in DURATIONS. A
number of bytes has the word `bytes` in its name, or is a `length`. The unit is part of the text, so
it is not part of the heading.

Invariant: text of a client, such as custom metadata, moves no cursor, begins no line and hides no
other text: what cannot be printed is escaped as in Python, `\x1b`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
Row = Mapping[str, Json]

KIBIBYTE: Final = 1024
MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S
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
            return printable(str(value))
        case Mapping():
            pairs = (f"{printable(key)}={describe_field(key, value[key])}" for key in value)
            return ", ".join(pairs) or NOTHING
        case Sequence():
            return ", ".join(describe_field(name, item) for item in value) or NOTHING
        case _:
            return printable(str(value))


def printable(text: str, keep: str = "") -> str:
    """Return a text in which characters that cannot be printed are escaped, except some."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode()
        for character in text
    )


def printable_bytes(data: bytes) -> str:
    """Return data of a client as one line for a terminal."""
    return printable(data.decode("utf-8", "backslashreplace"), "\t")


def _is_bytes(name: str) -> bool:
    return name == _LENGTH or "bytes" in name.split("_")


def describe_bytes(count: int) -> str:
    """Return a readable number of bytes: 1536 is '1.5 KiB'."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < KIBIBYTE:
            break
        size, unit = size / KIBIBYTE, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def describe_duration(seconds: float) -> str:
    """Return a readable duration: 95 is '2 min', 5400 is '1.5 h'."""
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    if seconds < 2 * DAY_S:
        return f"{seconds / HOUR_S:.1f} h"
    return f"{seconds / DAY_S:.1f} days"


YEAR_9999_MS: Final = 253_402_300_799_999
"""The last time of a calendar, in milliseconds after 1970."""


def describe_time(ms: int) -> str:
    """Return a readable time, in UTC: '2026-01-31 12:30:05 UTC'. One that a calendar does not have,
    as in a record whose producer wrote microseconds, is shown as a number.
    """
    if ms > YEAR_9999_MS:
        return f"{ms} ms after 1970"
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
