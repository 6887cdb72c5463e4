"""Display of the running demo: a live panel on a terminal, plain lines elsewhere.

Leaves the content, and when to show it, to `quire.demo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quire.cli.output import Output

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

FRAGMENTS_SHOWN_MAX: Final = 8
PLAIN_EVERY_TH_STATUS: Final = 4
BAR_CELLS: Final = 40


@dataclass(frozen=True, slots=True)
class FragmentLine:
    """Shown fields of a fragment; `last_entry_id` is None while the fragment grows."""

    first_entry_id: int
    last_entry_id: int | None
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoStatus:
    """Shown state of a running append."""

    share_done: float
    entries_per_s: float
    lac: int
    fragments: Sequence[FragmentLine]
    bookies: Sequence[tuple[str, str]]
    """Pairs (id, state)."""


def view_for(output: Output) -> "DemoView":
    """Return the view for the kind of output."""
    if output.remarks_to_person:
        try:
            return LiveView(output)
        except ModuleNotFoundError:
            return PlainView(output)
    return PlainView(output)


class PlainView:
    """View that prints everything as lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._statuses_seen = 0

    def say(self, text: str) -> None:
        """Print one line."""
        self._output.remark(text)

    def show(self, status: DemoStatus) -> None:
        """Print a line at intervals."""
        self._statuses_seen += 1
        if self._statuses_seen % PLAIN_EVERY_TH_STATUS == 0:
            self.say("    " + describe_status(status))

    def rest(self) -> None:
        """Do nothing."""


class LiveView:
    """View that keeps a panel below the printed steps; needs rich."""

    def __init__(self, output: Output) -> None:
        from rich.console import Console

        self._console = Console(file=output.remarks, highlight=False)
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """Print one line above the panel."""
        self._console.print(text, markup=False)

    def show(self, status: DemoStatus) -> None:
        """Draw the panel again."""
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(_panel(status), refresh=True)

    def rest(self) -> None:
        """Remove the panel."""
        if self._live is not None:
            self._live.stop()
            self._live = None


DemoView = PlainView | LiveView


def describe_status(status: DemoStatus) -> str:
    """Return a status as one line."""
    current = ", ".join(status.fragments[-1].ensemble) if status.fragments else "-"
    return (
        f"{status.share_done:4.0%}  {status.entries_per_s:>9,.0f} entries/s  LAC {status.lac:,}  "
        f"ensemble {current}  fragments {len(status.fragments)}"
    )


def describe_fragment(fragment: FragmentLine) -> str:
    """Return a fragment as one line."""
    first, last = fragment.first_entry_id, fragment.last_entry_id
    end = "..." if last is None else "(none)" if last < first else f"{last:,}"
    return f"entries {first:>9,} - {end:<9}  on {', '.join(fragment.ensemble)}"


def _panel(status: DemoStatus) -> "Table":
    from rich.table import Table
    from rich.text import Text

    done = round(status.share_done * BAR_CELLS)
    bar = Text("#" * done, style="green") + Text("." * (BAR_CELLS - done), style="dim")
    colours = {"up": "green", "killed": "red", "paused": "yellow", "restarting": "cyan"}
    bookies = Text("  ").join(
        Text(f"{bookie_id} ({state})", style=colours.get(state, ""))
        for bookie_id, state in status.bookies
    )
    table = Table.grid(padding=(0, 2))
    table.add_row("progress", bar + Text(f" {status.share_done:.0%}"))
    table.add_row("rate", f"{status.entries_per_s:,.0f} entries/s")
    table.add_row("LAC", f"{status.lac:,}")
    table.add_row("bookies", bookies)
    for fragment in status.fragments[-FRAGMENTS_SHOWN_MAX:]:
        table.add_row("fragment", describe_fragment(fragment))
    return table
