"""Start of several servers at the same time: how long it may take, and what is still waited for.

Leaves the start of one server to `quire.local.local_server`.

Invariants: a limit grows with the servers that share a core and with the load that the machine has
already, and is bounded; the first failure cancels the other starts and is the one that is raised.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from metadata.cancelling import cancel_and_wait

SCALE_MAX: Final = 10.0
"""Maximum factor of a limit on a busy machine."""
REMIND_S: Final = 5.0
"""Interval between reports of what is still waited for, in seconds."""


def scale_of(started_count: int, cores: int, load: float) -> float:
    """Return the factor of a limit: how many processes share a core, from 1 to SCALE_MAX. `load` is
    the number of processes that wanted a core during the last minute.
    """
    return min(SCALE_MAX, max(1.0, (started_count + load) / max(1, cores)))


def scaled_s(limit_s: float, started_count: int) -> float:
    """Return the limit of the start of `started_count` servers on this machine now, in seconds."""
    return limit_s * scale_of(started_count, os.cpu_count() or 1, os.getloadavg()[0])


async def start_all(
    starts: Mapping[str, Coroutine[None, None, None]],
    report: Callable[[str], None],
    *,
    remind_s: float = REMIND_S,
) -> None:
    """Run all starts, named by their servers, at the same time; report each `remind_s` which have
    not ended. At the first failure cancel the others and raise only that failure.
    """
    tasks = {name: asyncio.ensure_future(start) for name, start in starts.items()}
    reminding = asyncio.ensure_future(_remind(tasks, report, remind_s))
    try:
        await asyncio.gather(*tasks.values())  # raises the first failure
    finally:
        await cancel_and_wait(reminding, *tasks.values())


async def _remind(
    tasks: Mapping[str, "asyncio.Future[None]"], report: Callable[[str], None], every_s: float
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        await asyncio.sleep(every_s)
        waited = [name for name, task in tasks.items() if not task.done()]
        report(f"Waiting for {', '.join(waited)}, for {loop.time() - began:.0f} s now ...")
