"""The entries of a ledger as one bar, the oldest at the left: how safe they are. Pure.

Leaves finding the zones to `quire.console.ledger.zones`, and the numbers at the ends to the page.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from quire.console.drawings.patterns import fill
from quire.console.ledger.zones import Zone, ZoneRange

WIDTH: Final = 1_000
HEIGHT: Final = 42
BAR_HEIGHT: Final = 36
NARROWEST: Final = 4.0
"""Minimum width of a range that is not safe, so that it is seen."""
DRAWN_MAX: Final = 400
PATTERNS: Final[Mapping[Zone, str]] = MappingProxyType(
    {
        Zone.FULL: "good",
        Zone.ACK: "warn",
        Zone.UNKNOWN: "lined",
        Zone.SHORT: "bad",
        Zone.UNCONFIRMED: "dotted",
        Zone.LOST: "lost",
    }
)
"""In the order of drawing: what is worse is drawn over what is better."""
_ORDER: Final = list(PATTERNS)


def safety_strip(ranges: Sequence[ZoneRange], last: int, confirmed: int, text: str) -> Markup:
    """Return the bar of the entries 0 to `last`, which is at least 0, with a text that says what
    it shows.
    """
    shown = sorted(ranges, key=lambda each: _ORDER.index(each.zone))[-DRAWN_MAX:]
    scale = WIDTH / (last + 1)
    shapes = Markup("").join(_shape(each, scale) for each in shown)
    end = (confirmed + 1) * scale
    mark = Markup("")
    if 0 <= confirmed < last:
        mark = Markup('<path class="mark" d="M{:.1f} 0V{}"></path>').format(end, BAR_HEIGHT + 4)
    return Markup(
        '<svg viewBox="0 0 {} {}" class="strip" role="img" aria-labelledby="strip-title strip-text"'
        ' preserveAspectRatio="none"><title id="strip-title">Safety of the entries</title>'
        '<desc id="strip-text">{}</desc>{}{}</svg>'
    ).format(WIDTH, HEIGHT, text, shapes, mark)


def _shape(each: ZoneRange, scale: float) -> Markup:
    x, width = each.first * scale, each.count * scale
    if each.zone is not Zone.FULL:
        width = max(width, NARROWEST)
        x = min(x, WIDTH - width)
    return Markup(
        '<rect x="{:.2f}" y="2" width="{:.2f}" height="{}" class="shape" {}>'
        "<title>{}</title></rect>"
    ).format(x, width, BAR_HEIGHT, fill(PATTERNS[each.zone]), _title(each))


def _title(each: ZoneRange) -> str:
    entries = f"entry {each.first:,}" if each.count == 1 else f"{each.first:,} to {each.last:,}"
    return f"{entries}: {each.zone}, {each.copies} of {each.wanted} copies"
