"""Watch over the fuzzing process: inputs that take seconds, and memory that grows.

Leaves the allocations of one input to `tests.fuzz.targets`.
"""

import contextlib
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from tests.fuzz.findings import InvariantError, Tally

TICK_CPU_S: Final = 5.0
"""Processor time, not wall time: a busy machine is no hang."""
MEMORY_GROWTH_BYTES_MAX: Final = 64 * 1024 * 1024
_PEAK_RESET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")


class HangError(InvariantError):
    """One input takes longer than the limit."""


@contextlib.contextmanager
def hangs_noticed(tally: Tally) -> Iterator[None]:
    """Raise HangError during an input that takes TICK_CPU_S to twice as much."""
    last_inputs = [-1]

    def tick(_number: int, _frame: FrameType | None) -> None:
        if last_inputs[0] == tally.inputs:
            raise HangError(f"one input takes more than {TICK_CPU_S} s of processor time")
        last_inputs[0] = tally.inputs

    before = signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, TICK_CPU_S, TICK_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def forget_peak() -> None:
    """Reset the value of `peak_bytes` to the current use, where the system can."""
    with contextlib.suppress(OSError):
        _PEAK_RESET.write_text("5")


def peak_bytes() -> int:
    """Return the maximum memory of this process since `forget_peak`."""
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
