"""Application of each seeded bug to a copy of the tree, and its searches, within a time.

Leaves running and judging a search to `searches`, and the command line to `__main__`.

Invariants: a bug whose searches cannot run counts as not found; the others continue. Every copy is
removed. At most `workers` bugs are searched for at a time. A bug whose searches were stopped for
lack of time has no result.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.seeded_bugs import trees
from tests.seeded_bugs.searches import Finding, Searcher, Verdict, run_command
from tests.seeded_bugs.seeded_bug import Kind, SeededBug

COMPILE_S_MAX: Final = 300.0
OVERRUN_S_MAX: Final = 120.0
"""Time for the searches that run when the time of all is over; then they are stopped."""


@dataclass(frozen=True, slots=True)
class Result:
    """Findings of the searches for one bug."""

    bug: SeededBug
    findings: tuple[Finding, ...]

    @property
    def is_found(self) -> bool:
        """Return whether each search found the bug."""
        return all(finding.verdict is Verdict.FOUND for finding in self.findings)


def ordered(bugs: Iterable[SeededBug], seed: str, touched: Collection[str]) -> list[SeededBug]:
    """Return bugs in an order that a text chooses, those that edit `touched` files first."""
    known = list(bugs)
    drawn = Random(seed).sample(known, len(known))
    return sorted(drawn, key=lambda bug: not any(path in touched for path in bug.paths))


async def look_for(
    bugs: Sequence[SeededBug],
    kinds: Collection[Kind],
    on_result: Callable[[Result], None],
    *,
    workers: int,
    for_s: float | None = None,
) -> None:
    """Search for bugs in their order, for a time, and report each result."""
    end_s = None if for_s is None else asyncio.get_running_loop().time() + for_s
    work = Path(tempfile.mkdtemp(prefix="seeded-bugs-"))
    plain = work / "plain"
    searcher = Searcher(plain)

    async def look(bug: SeededBug) -> None:
        patched = work / bug.name
        try:
            on_result(await _result(bug, kinds, patched, searcher, plain))
        finally:
            shutil.rmtree(patched, ignore_errors=True)

    try:
        trees.copy_listed(trees.ROOT, plain)
        await run_command(["-m", "compileall", "-q", "-j", "0", "."], plain, COMPILE_S_MAX)
        await look_until(end_s, bugs, look, workers)
    finally:
        shutil.rmtree(work, ignore_errors=True)


async def look_until(
    end_s: float | None,
    bugs: Sequence[SeededBug],
    look: Callable[[SeededBug], Awaitable[None]],
    workers: int,
) -> None:
    """Look for bugs in their order; begin with none after the end, and stop OVERRUN_S_MAX later."""
    loop = asyncio.get_running_loop()
    waiting = deque(bugs)

    async def look_for_next() -> None:
        while waiting and (end_s is None or loop.time() < end_s):
            await look(waiting.popleft())

    with contextlib.suppress(TimeoutError):  # bugs without a result are not missed
        async with asyncio.timeout_at(None if end_s is None else end_s + OVERRUN_S_MAX):
            await asyncio.gather(*(look_for_next() for _ in range(workers)))


async def _result(
    bug: SeededBug, kinds: Collection[Kind], patched: Path, searcher: Searcher, plain: Path
) -> Result:
    searches = [search for search in bug.searches if search.kind in kinds]
    try:
        trees.copy_tree(plain, patched)
        trees.apply_bug(bug, patched)
        return Result(bug, tuple([await searcher.look(search, patched) for search in searches]))
    except (trees.PatchError, OSError) as error:
        evidence = (repr(error),)
        broken = [Finding(search, Verdict.BROKEN, evidence=evidence) for search in searches]
        return Result(bug, tuple(broken))
