"""Pages of long lists, each with the key from which the next one begins, and numbers in requests.

Leaves reading the rows to `pages/`.

Invariant: a number that is there and wrong is refused by `asked_number`, and never read as the
default: a change would do something else than was asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from aiohttp import web

ROWS_PER_PAGE: Final = 100
NUMBER_DIGITS_MAX: Final = 19

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    """One page of a list."""

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
    found = number_of(text, _ODD, most)
    if found == _ODD:
        raise web.HTTPBadRequest(text=f"{name} must be a whole number from 0 to {most}")
    return found
