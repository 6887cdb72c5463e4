"""Progress of long work: one moving line on a terminal, otherwise a plain line at intervals.

Time is that of the running event loop.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Self

from quire.cli.output import Output

if TYPE_CHECKING:
    from ledger_client.cluster_access import Cluster
    from quire.operate.ledger_pass import Read

BAR_CELLS: Final = 28
MOVING_INTERVAL_S: Final = 0.1
PLAIN_INTERVAL_S: Final = 5.0


class Progress:
    """Counter of one kind of item, with a total that may be unknown."""

    def __init__(self, output: Output, what: str, unit: str, total: int | None = None) -> None:
        self._output = output
        self._what = what
        self._unit = unit
        self.total = total
        self.done = 0
        self._started = self._shown = asyncio.get_running_loop().time()
        self._interval = MOVING_INTERVAL_S if output.remarks_to_person else PLAIN_INTERVAL_S
        self._line_is_open = False

    def advance(self, count: int) -> None:
        """Count more items, and show the progress if the interval has passed."""
        self.done += count
        now = asyncio.get_running_loop().time()
        if now - self._shown >= self._interval:
            self._shown = now
            self._show(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the moving line."""
        if self._line_is_open:
            self._show(asyncio.get_running_loop().time())
            self._output.remarks.write("\n")
            self._output.remarks.flush()
            self._line_is_open = False

    def _show(self, now: float) -> None:
        text = describe_progress(self.done, self.total, now - self._started, self._unit)
        if self._output.remarks_to_person:
            self._output.remarks.write(f"\r\x1b[K{self._what} {text}")
            self._output.remarks.flush()
            self._line_is_open = True
        else:
            self._output.remark(f"{self._what} {text}")


def describe_progress(done: int, total: int | None, elapsed_s: float, unit: str) -> str:
    """Return the progress as one line."""
    rate = f"{done / elapsed_s:,.0f} {unit}/s" if elapsed_s > 0 else f"- {unit}/s"
    if total and 0 < done < elapsed_s:
        rate = f"about {(total - done) * elapsed_s / done / 60:,.0f} min left"
    if not total:
        return f"{done:,} {unit}  {rate}"
    share = min(1.0, done / total)
    cells = "#" * round(share * BAR_CELLS)
    return f"[{cells:.<{BAR_CELLS}}] {share:4.0%}  {done:,}/{total:,} {unit}  {rate}"


async def each_ledger(cluster: "Cluster", output: Output) -> AsyncIterator["Read"]:
    """Yield each ledger's metadata, or the error of a record that cannot be read, and show the
    progress. Skips ledgers that are deleted meanwhile.
    """
    from quire.operate.ledger_pass import LedgerPass

    with Progress(output, "checked", "ledgers") as progress:
        async for read in LedgerPass(cluster, on_read=progress.advance):
            yield read
