"""Player of transcripts of departures: which bookies count as gone, and since when.

Set-up: `bookies a,b,c`, `lost_after 600` and `urgent_after 60` in seconds.

Events, with the time in seconds:
    look 100 up=a,b stopped=c       what is registered; of the others, which stopped in order
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from quire.repair.departures import Delays, Departures
from quire.repair.standing import Standing
from tests.scenarios import words as w

if TYPE_CHECKING:
    from metadata.repair.lifecycle import Lifecycle


class DeparturesPlayer:
    """The bookies of one cluster, as its auditor sees them."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._known = w.parse_bookies(setup["bookies"])
        self._delays = Delays(float(setup["lost_after"]), float(setup["urgent_after"]))
        self._departures = Departures()
        self._states: dict[BookieId, Lifecycle] = {}

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["look", time, *rest]:
                given = w.parse_options(rest)
                up = w.parse_bookies(given["up"])
                stopped = w.parse_bookies(given.get("stopped", ""))
                return self._look(float(time), up, stopped)
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _look(self, now_s: float, up: Sequence[BookieId], stopped: Sequence[BookieId]) -> list[str]:
        registered = {bookie: BookieRegistration(bookie, "host", 1) for bookie in up}
        seen = self._departures.look(
            self._known, registered, self._states, stopped, self._delays, now_s
        )
        self._states |= {change.bookie_id: change.to for change in seen.changes}
        shown = [f"{change.bookie_id} is {change.to}: {change.reason}" for change in seen.changes]
        shown += [f"{bookie} is gone for last copies" for bookie in seen.urgent]
        standings = seen.standings
        gone = [bookie for bookie in self._known if standings.of(bookie) is Standing.GONE]
        shown += [f"{bookie} is gone" for bookie in gone]
        return shown + ([] if seen.due_s is None else [f"next change at {seen.due_s:g}"])
