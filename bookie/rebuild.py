"""Finds the runs of a ledger again in every segment, when the index cannot prove what it holds of
it.

Leaves noticing that to `bookie.reading`, and storing what is found to the next checkpoint.

Invariants: a ledger that is rebuilt is fenced and in limbo, until its metadata says that it is
closed; what the memory knows of it wins.
Source: protocol rule 2.4; storage design, "Index"; reliability D5.
"""

from bookie import index_runs, listing, records
from bookie.index import Index
from bookie.ledgers import Ledgers
from bookie.records import FooterRun
from bookie.segments import Segments
from metadata.ids import ENTRY_ID_MAX


async def rebuild_ledgers(
    ledger_ids: list[int], ledgers: Ledgers, index: Index, segments: Segments
) -> bool:
    """Index again whatever any segment holds of some ledgers; return whether every segment could be
    listed.
    """
    wanted = dict.fromkeys(ledger_ids)
    for ledger_id in ledger_ids:
        state = ledgers.states.get(ledger_id)
        if state is not None:
            state.limbo = state.fenced = state.is_fence_durable = state.is_dirty = True
    is_whole = True
    for number, segment in sorted(segments.by_number.items(), reverse=True):
        listed = await listing.list_records(segments, segment)
        if listed is None:
            is_whole = False
            continue
        for run in reversed(listed):
            if run.ledger_id in wanted and run.ledger_id in ledgers.states:
                _insert_gaps(index, number, run)
    return is_whole


def _insert_gaps(index: Index, number: int, run: FooterRun) -> None:
    """Index the part of a record that nothing newer holds."""
    first, last = run.first_entry_id, run.first_entry_id + run.count - 1
    assert last <= ENTRY_ID_MAX
    known = index.in_memory(run.ledger_id, first, last)
    location = records.lsn_of(number, run.offset)
    for gap_first, gap_last in index_runs.find_gaps(known, first, last):
        index.insert(run.ledger_id, gap_first, gap_last, location, run.size)
