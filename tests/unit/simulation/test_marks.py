"""Tests that a mark that moves back is reported at its commit, even before the next commit."""

import asyncio
import random
from collections.abc import Callable
from unittest.mock import patch

from bookie.files.disk import StoreTransaction
from bookie.index.index_pages import INDEX_VERSION, CheckpointMeta, write_meta
from tests.simulation.checkers.bookie_answers import MarksChecker
from tests.simulation.checkers.checker import Checkers
from tests.simulation.disk import CrashableDisk, Platter
from tests.simulation.index_store import MemoryStore
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.run import run_seed

HOST = "bookie-0"
SEED = 1
"""Its theme has checkpoints."""


def _violations(marks: list[int], *, damaged: dict[str, None]) -> list[str]:
    """Commit marks one directly after the other on one disk; return the violations."""
    loop = SimulationLoop(0)
    model = Model(loop)
    checkers = Checkers(model, [MarksChecker(model, damaged)])

    def storing(mark: int) -> Callable[[StoreTransaction], None]:
        return lambda transaction: write_meta(
            transaction, CheckpointMeta(INDEX_VERSION, 0, mark, 0, 0)
        )

    def see(store: MemoryStore) -> None:
        checkers.on_index_stored(HOST, store)

    async def main() -> None:
        disk = CrashableDisk(Platter(), random.Random(1))
        disk.on_index_stored = see
        store = await disk.open_index("index", 1)
        for mark in marks:
            await store.update(storing(mark))

    asyncio.run(main())
    loop.close()
    return [str(violation) for violation in model.violations]


def test_every_commit_is_checked() -> None:
    assert _violations([3, 3, 7], damaged={}) == []
    (violation,) = _violations([3, 7, 4, 9], damaged={})
    assert "marks" in violation
    assert "from 7 to 4" in violation
    assert _violations([3, 7, 4, 9], damaged={HOST: None}) == []


def test_a_bookies_own_checkpoints_are_checked() -> None:
    """Test the constructors that a run uses; otherwise the checker would never be called."""
    seen: list[int] = []
    look = MarksChecker.on_index_stored

    def noted(self: MarksChecker, host: str, store: MemoryStore) -> None:
        seen.append(len(store.keys))
        look(self, host, store)

    with patch.object(MarksChecker, "on_index_stored", noted):
        result = run_seed(SEED)
    assert result.faults["checkpoint"] > 0
    assert len(seen) > result.faults["checkpoint"]
