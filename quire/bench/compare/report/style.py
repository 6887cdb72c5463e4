"""Style sheets of a comparison's page: one of its content, and one of a page of its own.

Leaves the content to `quire.bench.compare.report.page`. The console uses the first one, with its
own page around the content.

Invariants: every colour has a twin for the dark; rules of the content are below `.report`.
"""

from collections.abc import Sequence
from typing import Final

LIGHT: Final = (
    "#0072b2", "#b34700", "#00795a", "#a8437f", "#8a6100", "#2e7ebf", "#6b4bb3", "#555555",
    "#a3161f",
)  # fmt: skip
DARK: Final = (
    "#56b4e9", "#ff9a57", "#33cfa0", "#eba3cf", "#f2c14e", "#a5d8ff", "#c4adff", "#c2c2c2",
    "#ff9aa2",
)  # fmt: skip
DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3", "none", "7 3", "2 3", "9 3 2 3", "4 2")
_RULES: Final = """\
.report { --ink: #1b1b1b; --paper: #ffffff; --faint: #d5d5d5; --mark: #c00000; --full: #2f7d4f;
  --ack: #d9962b; --open: #9a9a9a; --best: #dff0e4; max-width: 64rem; }
@media (prefers-color-scheme: dark) {
  .report { --ink: #e6e6e6; --paper: #16181b; --faint: #3a3f45; --mark: #ff6b6b; --full: #4fae78;
    --ack: #f0b54f; --open: #7c7c7c; --best: #1d3a28; } }
.report figure { margin: 0; }
.report svg { width: 100%; height: auto; }
.report svg text { fill: var(--ink); font-size: 12px; } .report svg .tick { font-size: 9px; }
.report .grid { stroke: var(--faint); }
.report .mark { stroke: var(--mark); stroke-width: 2; stroke-dasharray: 3 2; }
.report .series { fill: none; stroke-width: 2; } .report .series.thin { stroke-width: 1; }
.report .series.thick { stroke-width: 7; }
.report svg .end { font-weight: bold; stroke: none; }
.report .zone-full { fill: var(--full); }
.report .zone-ack { fill: var(--ack); stroke: var(--ink); }
.report .zone-open { fill: var(--paper); stroke: var(--ink); stroke-dasharray: 3 2; }
.report .wide { overflow-x: auto; }
.report table { border-collapse: collapse; font-size: 13px; margin: .5rem 0 1rem; }
.report th, .report td { border-bottom: 1px solid var(--faint); padding: .15rem .6rem;
  text-align: right; }
.report th:first-child { text-align: left; white-space: nowrap; }
.report tbody th { font-weight: normal; }
.report .best { font-weight: bold; background: var(--best); }
.report .advice { border-left: 4px solid var(--full); padding: .1rem 0 .1rem .9rem;
  margin: 1rem 0; }
.report .advice h3, .report .advice p { margin: .2rem 0; }
.report .advice h3 { font-weight: normal; font-size: 1.1rem; }
.report .left-out { font-size: 13px; }
.report summary { cursor: pointer; }
"""
PAGE_STYLE: Final = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 64rem;
  color: #1b1b1b; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181b; } }
"""
"""Rules of a page that holds nothing but the content."""


def _colours() -> str:
    def rules(colours: Sequence[str]) -> str:
        return "".join(
            f".report .s{n} {{ stroke: {colour}; }}\n"
            f".report .dot.s{n}, .report svg .end.s{n} {{ fill: {colour}; }}\n"
            for n, colour in enumerate(colours)
        )

    dashes = "".join(
        f".report path.s{n} {{ stroke-dasharray: {d}; }}\n" for n, d in enumerate(DASHES)
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {rules(DARK)} }}\n"
    return rules(LIGHT) + dark + dashes


REPORT_STYLE: Final = _RULES + _colours()
"""Rules of the content."""
