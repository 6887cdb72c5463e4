"""Search for the runs of a segment that the index names, and their size in bytes.

Leaves the use of the runs to `bookie.storage.cleaner`.

Invariant: a result accounts for every listed record; otherwise there is no result.
Source: storage design, "Cleaning".
"""

from collections.abc import Iterable

from bookie.index.index import Index
from bookie.index.index_runs import Run
from bookie.log import records
from bookie.log.listed_runs import ListedRuns
from bookie.slices import cut, in_order
from bookie.storage.cold_ledgers import find_gone
from bookie.storage.ledgers import Ledgers


async def find_named(
    ledgers: Ledgers, index: Index, number: int, listed: ListedRuns
) -> list[tuple[int, Run]] | None:
    """Return the runs (ledger id, run) of some records of a segment that the index names; None when
    it cannot account for all records.
    """
    named: list[tuple[int, Run]] = []
    spans = await listed.spans()
    for part in cut(spans.items()):
        ledger_ids = [ledger_id for ledger_id, _ in part]
        deleted, released = await find_gone(ledgers, index, ledger_ids)
        for ledger_id, (first, last) in part:
            if ledger_id in deleted:
                continue
            # Before the store is read: a checkpoint that ends during the read moves runs out of
            # memory.
            in_memory = index.in_memory(ledger_id, first, last)
            if any(records.segment_of(run[2]) == number for run in in_memory):
                return None  # a rebuilt ledger's runs are not stored yet
            runs = await index.stored_runs(ledger_id, first, last)
            if runs is None or ((not runs or runs[-1][0] < last) and ledger_id not in released):
                return None  # entries of this segment are missing from the index
            named += [(ledger_id, r) for r in runs if records.segment_of(r[2]) == number]
    return named


async def live_bytes_of(runs: Iterable[tuple[int, Run]]) -> int:
    """Return how many bytes of a segment some runs (ledger id, run) take. Bytes that several runs
    share count once.
    """
    total = end = 0
    async for part in in_order((run[2], run[3]) for _, run in runs):
        for start, size in part:
            total += max(0, start + size - max(start, end))
            end = max(end, start + size)
    return total
