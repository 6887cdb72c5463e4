"""SVG elements, pictures with a name and a description, and the scales of their axes.

Invariants: pure; every text is escaped; a picture refers to nothing outside itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

Attributes = Mapping[str, str | float]

HIGH_MIN: Final = 1e-300
"""Values below this count as 0: their logarithm would not be exact, or would not exist."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Map from values to places along one axis."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; a value outside the axis is put at the nearer end."""
        low, high = self._of(self.low), self._of(self.high)
        at = min(max(self._of(max(value, self.low)), low), high)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _of(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def element(name: str, attributes: Attributes, *children: str) -> str:
    """Return one element; the children must be SVG."""
    words = "".join(f" {key}={quoteattr(_number(value))}" for key, value in attributes.items())
    inside = "".join(children)
    return f"<{name}{words}>{inside}</{name}>" if inside else f"<{name}{words}/>"


def escaped(content: str) -> str:
    """Return plain text as SVG."""
    return escape(content)


def text(x: float, y: float, content: str, *, css: str = "", anchor: str = "start") -> str:
    """Return a piece of text."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "text-anchor": anchor}
    if css:
        attributes["class"] = css
    return element("text", attributes, escape(content))


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """Return a straight line."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": css})


def path(points: Sequence[tuple[float, float]], css: str) -> str:
    """Return straight lines from point to point; empty without points."""
    if not points:
        return ""
    steps = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return element("path", {"d": steps, "class": css})


def rectangle(x: float, y: float, width: float, height: float, css: str) -> str:
    """Return a rectangle."""
    return element("rect", {"x": x, "y": y, "width": width, "height": height, "class": css})


def picture(
    name: str, width: float, height: float, title: str, description: str, *children: str
) -> str:
    """Return a complete picture; `name` must be unique on its page."""
    described = f"{name}-title {name}-description"
    return element(
        "svg",
        {
            "viewBox": f"0 0 {_number(width)} {_number(height)}",
            "role": "img",
            "aria-labelledby": described,
        },
        element("title", {"id": f"{name}-title"}, escape(title)),
        element("desc", {"id": f"{name}-description"}, escape(description)),
        *children,
    )


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from the one at or below `low` to the one at or above `high`."""
    assert 0 < low <= high
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def steps(high: float, count: int = 6) -> list[float]:
    """Return about `count` round values from 0 to at least `high`."""
    if high < HIGH_MIN:
        return [0.0, 1.0]
    raw = high / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(magnitude * m for m in (1, 2, 5, 10) if magnitude * m >= raw * 0.999)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".removesuffix(".0")
