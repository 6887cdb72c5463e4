"""Process that holds the auditor's index of many ledgers, and plans the departure of a bookie.

Leaves choosing the numbers, and reporting, to `benchmarks.repair.planning`, which runs
`python -m benchmarks.repair.index_load LEDGERS BOOKIES`.

Format: one JSON object on standard output.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

import quire.repair.repair_process  # noqa: F401 - its modules are part of the memory
from benchmarks.measures import MEGABYTE
from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.repair.job_store import JOBS_MAX
from quire.repair.ledger_index import LedgerIndex
from quire.repair.standing import Standing, Standings

REPLICAS: Final = QuorumSpec(3, 3, 2)
ENTRIES: Final = 1_000
LENGTH_MAX: Final = 10**9
SECOND_FRAGMENT_SHARE: Final = 0.1
"""Share of the ledgers whose writer replaced a bookie once."""


def bookie_ids(count: int) -> list[BookieId]:
    """Return the ids of the bookies."""
    return [BookieId(f"bookie-{number}-7fec25") for number in range(1, count + 1)]


def sample_ledgers(count: int, bookies: list[BookieId], rng: Random) -> Iterator[LedgerMetadata]:
    """Yield closed ledgers on random bookies."""
    token = UpdateToken(bytes(16))
    closed = LedgerMetadata(
        ledger_id=LedgerId(1),
        state=LedgerState.CLOSED,
        quorum=REPLICAS,
        fragments=(Fragment(EntryId(0), tuple(bookies[:3])),),
        digest=DigestType.CRC32C,
        created_ms=0,
        creation_token=token,
        update_token=token,
        writer=ClientId("client-x"),
        last_entry_id=EntryId(ENTRIES - 1),
        length=0,
    )
    for number in range(1, count + 1):
        starts = (0, ENTRIES // 2) if rng.random() < SECOND_FRAGMENT_SHARE else (0,)
        fragments = tuple(
            Fragment(EntryId(start), tuple(rng.sample(bookies, REPLICAS.ensemble_size)))
            for start in starts
        )
        length = rng.randrange(LENGTH_MAX)
        yield replace(closed, ledger_id=LedgerId(number), fragments=fragments, length=length)


def resident_mb(kind: str = "VmRSS") -> float:
    """Return the resident memory of this process: `VmRSS` now, or `VmHWM` at its peak."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"{kind}:"))
    return int(row.split()[1]) * 1024 / MEGABYTE


def main() -> None:
    """Fill the index, plan, and print the figures."""
    ledger_count, bookie_count = (int(count) for count in sys.argv[1:])
    bookies = bookie_ids(bookie_count)
    before_mb = resident_mb()
    index = LedgerIndex()
    start = perf_counter()
    for ledger in sample_ledgers(ledger_count, bookies, Random(1)):
        index.put(ledger)
    fill_s = perf_counter() - start
    filled_mb = resident_mb()
    start = perf_counter()
    plan = index.plan(Standings({bookies[0]: Standing.GONE}), (), JOBS_MAX)
    plan_s = perf_counter() - start
    figures = {
        "rss_before_MB": before_mb,
        "rss_MB": filled_mb,
        "rss_peak_MB": resident_mb("VmHWM"),
        "fill_s": fill_s,
        "plan_s": plan_s,
        "affected_ledgers": sum(total.ledgers for total in plan.totals.values()),
        "first_jobs": len(plan.first),
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
