"""Benchmark of the console's pages, next to real bookies and ZooKeeper.

Leaves how pages look to tests/browser. Cases: the first page and the list of ledgers with 100,000
ledgers, during the check of all ledgers and after it; the page of a ledger with 10,000 fragments,
and how long a small page waits meanwhile; the page of a ledger while one of its bookies is stopped.

Target: the first page under 200 ms after the check.
"""

import asyncio
from typing import Final

from benchmarks.cluster import running
from benchmarks.console.console_process import MeasuredConsole, measured_console
from benchmarks.console.stored_ledgers import FIRST_ID, store_ledgers
from benchmarks.runner import Bench, run
from ledger_client import Quorum
from metadata.ids import BookieId

LEDGERS: Final = 100_000
FRAGMENTS: Final = 10_000
SMOKE_LEDGERS: Final = 300
SMOKE_FRAGMENTS: Final = 200
BOOKIES: Final = 4
FIRST_PAGE_MS_WANTED: Final = 200.0
CHECKED: Final = "Checked "
CHECK_POLL_S: Final = 1.0
BESIDE_POLL_S: Final = 0.005
SMALL_PAGE: Final = "/livez"
HANGS: Final = "a ledger while a bookie hangs"


async def _measure(bench: Bench) -> None:
    with bench.subdirectory() as directory:
        async with running(directory, BOOKIES) as cluster:
            uri = cluster.cluster.metadata_uri
            count = bench.size(LEDGERS, SMOKE_LEDGERS)
            bookies = [BookieId(bookie.id) for bookie in cluster.bookies]
            bench.report.note(f"storing {count:,} ledgers")
            fragments = bench.size(FRAGMENTS, SMOKE_FRAGMENTS)
            many = await store_ledgers(uri, bookies, count, fragments)
            async with measured_console(uri) as console:
                lists = {
                    "first page": "/",
                    "list of ledgers": "/ledgers",
                    "list of ledgers, in the middle": f"/ledgers?from={FIRST_ID + count // 2}",
                }
                for name, path in lists.items():
                    await _pages(bench, console, f"{name}, during the check", path)
                bench.report.note("waiting for the check of all ledgers")
                await console.wait_for("/", CHECKED, CHECK_POLL_S)
                for name, path in lists.items():
                    await _pages(bench, console, name, path)
                await _fragments(bench, console, f"/ledgers/{many}")
            async with cluster.client.create_ledger(Quorum(3, 3, 2)) as ledger:
                await ledger.append(b"one")
                ensemble = (await cluster.client.ledger_info(ledger.id)).fragments[0].ensemble
            hung = next(bookie for bookie in cluster.bookies if bookie.id == ensemble[0])
            hung.pause()
            try:
                async with measured_console(uri) as console:
                    await _hung(bench, console, f"/ledgers/{ledger.id}")
            finally:
                hung.resume()
    most = FIRST_PAGE_MS_WANTED
    for name in lists:
        bench.report.figure(f"{name}, during the check", "ms", "ms")
        bench.report.figure(name, "ms", "ms", at_most=most)
    for name in ("a ledger with many fragments", "a small page beside it", HANGS):
        bench.report.figure(name, "ms", "ms")
    bench.report.figure(f"{HANGS}, first view", "ms", "ms")


async def _pages(bench: Bench, console: MeasuredConsole, case: str, path: str) -> None:
    for _ in range(bench.repetitions):
        bench.report.sample(case, {"ms": await console.page_ms(path)})


async def _fragments(bench: Bench, console: MeasuredConsole, path: str) -> None:
    """Load a page that takes long, and again and again a small one beside it."""
    for _ in range(bench.repetitions):
        page = asyncio.create_task(console.page_ms(path))
        longest_ms = 0.0
        while not page.done():
            longest_ms = max(longest_ms, await console.page_ms(SMALL_PAGE))
            await asyncio.sleep(BESIDE_POLL_S)
        bench.report.sample("a ledger with many fragments", {"ms": await page})
        bench.report.sample("a small page beside it", {"ms": longest_ms})


async def _hung(bench: Bench, console: MeasuredConsole, path: str) -> None:
    bench.report.sample(f"{HANGS}, first view", {"ms": await console.page_ms(path)})
    await _pages(bench, console, HANGS, path)


if __name__ == "__main__":
    run("console_pages", _measure, repeat=11)
