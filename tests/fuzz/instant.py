"""Execution of disk readers without an event loop, on a disk that answers at once.

Leaves the contents of the disk to the targets.

Invariant: more than `STEPS_MAX` operations for one input count as an endless loop.
"""

import random
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from typing_extensions import override  # `typing` has it from 3.12 on

from tests.fuzz.findings import InvariantError
from tests.simulation.disk import Content, CrashableDisk, DiskFaults, Platter

Result = TypeVar("Result")
STEPS_MAX: Final = 20_000

YIELDS_MAX = 10_000


class InstantDisk(CrashableDisk):
    """The simulated disk, without its delays."""

    def __init__(self, platter: Platter, rng: random.Random) -> None:
        super().__init__(platter, rng, DiskFaults(delay_s_max=0.0))
        self.steps = 0

    @override
    async def pause(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise InvariantError(f"more than {STEPS_MAX} operations on the disk for one input")


def platter_with(**files: bytes) -> Platter:
    """Return a platter with these durable files in the log's directory."""
    platter = Platter()
    for name, data in files.items():
        content = Content(durable=bytearray(data), current=bytearray(data))
        platter.names[f"log/{name}"] = platter.durable_names[f"log/{name}"] = content
    return platter


def drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits; it may yield to the loop a limited number of times."""
    try:
        for _ in range(YIELDS_MAX):
            if work.send(None) is not None:
                break
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise InvariantError("it waits for an event that never comes")
