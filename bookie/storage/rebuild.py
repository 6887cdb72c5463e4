"""Search of all segments for the runs of ledgers whose runs the index cannot prove complete.

Leaves the detection to `bookie.storage.reading`, and storing the found runs to the next checkpoint.

Invariants: one search runs at a time, with a rest after each; no segment is removed while it is
listed, but others may be cleaned between two, and segments that cleaning writes meanwhile are
listed too; a ledger is in limbo during its search, and afterwards too unless every segment was
listed and the entry was found; runs in memory win over found ones; a ledger is not searched for
again for `SEARCH_AGAIN_S`, and entries that the search did not find stay unknown until they are
stored again. Fences are in the ledger states, so a lost run loses no fence.
Source: protocol rule 2.4; storage design, "Index"; reliability design, D5.
"""

import asyncio
from functools import partial
from operator import attrgetter
from typing import Final

from bookie.index import index_runs, replica_state
from bookie.index.index import Index
from bookie.index.replica_state import ReplicaState
from bookie.log import records, replay
from bookie.log.records import FooterRun
from bookie.log.segments import Segment, Segments
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.ledgers import Ledgers
from metadata.ids import ENTRY_ID_MAX

SEARCH_AGAIN_S: Final = 3600.0
"""Minimum time between two searches for one ledger, in seconds: the index may lose more runs."""
SEARCHED_MAX: Final = 10_000
"""Maximum number of remembered searches by ledger; above it, the oldest are dropped."""
REST_SHARE: Final = 9.0
"""Rest after a search, as a multiple of the time that listing took."""


class Rebuilder:
    """Search of the segments for ledgers that reads reported as unproven."""

    def __init__(
        self,
        ledgers: Ledgers,
        cold: ColdLedgers,
        index: Index,
        segments: Segments,
        unproven: dict[int, int],
    ) -> None:
        """`unproven`: the ledgers to search for, each with an entry that was not found. Reads add
        to it.
        """
        self.search_count = 0
        self._ledgers = ledgers
        self._cold = cold
        self._index = index
        self._segments = segments
        self._unproven = unproven
        self._searched_at_s: dict[int, float] = {}
        self._worked_s = 0.0
        """How long this search has listed segments, in seconds."""

    async def search(self, cleaning: asyncio.Lock) -> bool:
        """Search once for all waiting ledgers, if any, and rest; return whether a search ran. Holds
        `cleaning` while it lists one segment, so that none is removed meanwhile.
        """
        wanted = self._take_wanted()
        if not wanted:
            return False
        self._worked_s = 0.0
        await self._rebuild(wanted, cleaning)
        self.search_count += 1
        ended_s = asyncio.get_running_loop().time()
        for ledger_id in wanted:
            self._searched_at_s.pop(ledger_id, None)
            self._searched_at_s[ledger_id] = ended_s
        for ledger_id in list(self._searched_at_s)[:-SEARCHED_MAX]:
            del self._searched_at_s[ledger_id]
        await asyncio.sleep(REST_SHARE * self._worked_s)
        return True

    def _take_wanted(self) -> dict[int, int]:
        now_s = asyncio.get_running_loop().time()
        wanted: dict[int, int] = {}
        for ledger_id, entry_id in self._unproven.items():
            searched_at_s = self._searched_at_s.get(ledger_id)
            if searched_at_s is None or now_s - searched_at_s >= SEARCH_AGAIN_S:
                wanted[ledger_id] = entry_id
        self._unproven.clear()
        return wanted

    async def _rebuild(self, wanted: dict[int, int], cleaning: asyncio.Lock) -> None:
        """Index all records of some ledgers that are in any segment."""
        held: dict[int, ReplicaState] = {}
        was_sound: list[int] = []
        for ledger_id in wanted:
            state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
            if state is not None:
                held[ledger_id] = state
                if not state.limbo:
                    was_sound.append(ledger_id)
                    replica_state.enter_limbo(state, fence=False)
        try:
            is_whole = await self._index_again(held, cleaning)
            for ledger_id in was_sound:
                entry_id = wanted[ledger_id]
                if is_whole and self._index.in_memory(ledger_id, entry_id, entry_id):
                    held[ledger_id].limbo = False
        finally:
            for state in held.values():
                state.touch()  # the next checkpoint moves its runs and needs the state in memory
                state.use_count -= 1

    async def _index_again(self, held: dict[int, ReplicaState], cleaning: asyncio.Lock) -> bool:
        """Insert the records of some ledgers from all segments; return whether all could be
        listed.
        """
        is_whole = True
        last, listed = self._segments.next_number - 1, dict[int, None]()
        while (segment := self._newest(last, listed)) is not None:
            listed[segment.number] = None
            async with cleaning:
                # Cleaning drops a segment only when the index names all of its live records.
                if segment.number in self._segments.by_number:
                    is_whole &= await self._index_segment(segment, held)
        return is_whole

    def _newest(self, last: int, listed: dict[int, None]) -> Segment | None:
        """Return the newest segment to list next: one that was there when the search began, up to
        number `last`, or that cleaning has written since.
        """
        left = (
            segment
            for number, segment in self._segments.by_number.items()
            if number not in listed and (number <= last or segment.is_cleaned)
        )
        return max(left, key=attrgetter("number"), default=None)

    async def _index_segment(self, segment: Segment, held: dict[int, ReplicaState]) -> bool:
        """Insert the records of some ledgers from one segment; return whether it could be
        listed.
        """
        began_s = asyncio.get_running_loop().time()
        listed = await replay.list_records(self._segments, segment)
        if listed is not None:
            async for runs in listed.slices(newest_first=True):
                for run in runs:
                    if run.ledger_id in held and run.ledger_id in self._ledgers.states:
                        _insert_gaps(self._index, segment.number, run)
        self._worked_s += asyncio.get_running_loop().time() - began_s
        return listed is not None


def _insert_gaps(index: Index, number: int, run: FooterRun) -> None:
    """Index the part of a record that no newer record covers."""
    first, last = run.first_entry_id, run.first_entry_id + run.count - 1
    assert last <= ENTRY_ID_MAX
    known = index.in_memory(run.ledger_id, first, last)
    location = records.lsn_of(number, run.offset)
    for gap_first, gap_last in index_runs.find_gaps(known, first, last):
        index.insert(run.ledger_id, gap_first, gap_last, location, run.size)
