"""Payloads of entries as text for people. Pure.

Leaves reading them to `entry_reading`, and escaping to the templates.

Invariants: at most SHOWN_BYTES_MAX bytes of a payload are shown, and it is said how many there are;
characters that are not printable, or that change the direction of text, are shown as escapes.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHOWN_BYTES_MAX: Final = 4_096
BYTES_PER_LINE: Final = 16
_KEPT: Final = "\n\t"


class Form(StrEnum):
    """How a payload is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload, or its beginning."""

    text: str
    length: int
    """Bytes of the complete payload."""
    form: Form
    """How it is shown: not as JSON, for example, if it is none."""
    shown_bytes: int
    """Bytes that the text shows: fewer than `length` if it is cut."""

    @property
    def is_cut(self) -> bool:
        """Whether the text shows only the beginning."""
        return self.shown_bytes < self.length


def form_of(name: str | None) -> Form:
    """Return the form that a query names; text for any other name."""
    return next((each for each in Form if each == name), Form.TEXT)


def shown(payload: bytes, form: Form) -> Shown:
    """Return a payload as text."""
    begin = payload[:SHOWN_BYTES_MAX]
    if form is Form.HEX:
        return Shown(_dump(begin), len(payload), Form.HEX, len(begin))
    if form is Form.JSON and len(begin) == len(payload):
        indented = _indented(begin)
        if indented is not None:
            return Shown(indented, len(payload), Form.JSON, len(begin))
    return Shown(
        printable(begin.decode("utf-8", "backslashreplace")), len(payload), Form.TEXT, len(begin)
    )


def _indented(payload: bytes) -> str | None:
    """Return JSON with one value on each line; None if it is not JSON."""
    try:
        text = json.dumps(json.loads(payload), indent=2)
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= SHOWN_BYTES_MAX * BYTES_PER_LINE else None


def printable(text: str) -> str:
    """Return a text with escapes for what is not printable, or changes the direction of text."""
    return "".join(each if each.isprintable() or each in _KEPT else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _dump(payload: bytes) -> str:
    """Return lines of an offset, bytes and the characters among them."""
    lines = []
    for offset in range(0, len(payload), BYTES_PER_LINE):
        row = payload[offset : offset + BYTES_PER_LINE]
        characters = "".join(chr(each) if chr(each) in _ASCII else "." for each in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{3 * BYTES_PER_LINE}} {characters}")
    return "\n".join(lines)


_ASCII: Final = frozenset(map(chr, range(0x20, 0x7F)))
