"""Runs configurations and seeds in parallel processes, one per processor.

Leaves each run to `simulation`.

Invariants: the results are in the requested order; processes share nothing.
"""

import asyncio
import gc
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.fleet.assumptions import Assumptions
from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.results import RunFigures, figures
from benchmarks.fleet.simulation import Simulation


def run_one(name: str, assumptions: Assumptions, seed: int) -> RunFigures:
    """Simulate one configuration under one seed. Raises FleetTooSmallError."""
    return figures(Simulation(BY_NAME[name], assumptions, seed).run(), seed)


async def run_all(
    names: Sequence[str],
    assumptions: Assumptions,
    seeds: Sequence[int],
    ended: Callable[[RunFigures], None],
) -> list[RunFigures]:
    """Simulate every configuration under every seed; call `ended` as each ends."""
    loop = asyncio.get_running_loop()

    async def run(name: str, seed: int) -> RunFigures:
        result = await loop.run_in_executor(pool, run_one, name, assumptions, seed)
        ended(result)
        return result

    cells = [(name, seed) for seed in seeds for name in names]
    context = multiprocessing.get_context("spawn")
    workers = min(len(cells), os.cpu_count() or 1)
    # A run makes millions of small objects and few cycles: the search for cycles costs a tenth.
    with ProcessPoolExecutor(workers, mp_context=context, initializer=gc.disable) as pool:
        try:
            return list(await asyncio.gather(*(run(*cell) for cell in cells)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
