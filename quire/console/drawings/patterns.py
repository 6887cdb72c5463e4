"""Patterns of drawings, so that no meaning is in a colour alone. Pure.

Leaves colours to `console.css`.

A page that has drawings with these patterns draws `definitions` once.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

_LINES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "good": "",
        "warn": "M0 8L8 0M-2 2L2 -2M6 10L10 6",
        "bad": "M0 0L8 8M0 8L8 0",
        "dotted": "M2 2h1M6 6h1",
        "lined": "M0 4H8",
        "barred": "M2 0V8M6 0V8",
        "lost": "M0 0H8V8H0Z",
    }
)
"""Name of a pattern -> path of its lines; a pattern without lines is a plain surface."""
SIZE: Final = 8


def definitions() -> Markup:
    """Return the patterns as an invisible image."""
    found = Markup("").join(
        Markup(
            '<pattern id="pattern-{}" patternUnits="userSpaceOnUse" width="8" height="8" '
            'class="pattern {}"><rect width="8" height="8"></rect><path d="{}"></path></pattern>'
        ).format(name, name, lines)
        for name, lines in _LINES.items()
    )
    return Markup(
        '<svg width="0" height="0" aria-hidden="true" class="patterns"><defs>{}</defs></svg>'
    ).format(found)


def fill(name: str) -> Markup:
    """Return the attribute that fills a shape with a pattern."""
    assert name in _LINES, name
    return Markup('fill="url(#pattern-{})"').format(name)


def swatch(name: str) -> Markup:
    """Return a small square with a pattern, for the explanation beside a drawing."""
    return Markup(
        '<svg width="24" height="16" aria-hidden="true" class="swatch">'
        '<rect x="1" y="1" width="22" height="14" class="shape" {}></rect></svg>'
    ).format(fill(name))
