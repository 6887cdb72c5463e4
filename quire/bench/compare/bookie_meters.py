"""Sum of the bytes that bookies wrote to their logs, across restarts.

Leaves counting to the bookies (their admin servers report it), and dividing by entries to
`quire.bench.compare.measuring`.

Invariant: the counters of a process that is killed are those of its last reading, which is taken
right before each kill.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from quire.local.local_bookie import LocalBookie
from quire.operate.admin_api import AdminApiError, get_json

READ_TIMEOUT_S: Final = 0.5
LOG_BYTES: Final = "log_bytes_written"


class BookieMeters:
    """Bytes written by some bookies since the first reading."""

    def __init__(self, bookies: Sequence[LocalBookie]) -> None:
        self._bookies = bookies
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._is_first_reading = True

    async def read(self) -> None:
        """Read every bookie that responds; keep the earlier figure of one that does not."""
        running = [bookie for bookie in self._bookies if bookie.is_running]
        answers = await asyncio.gather(*(_log_bytes(bookie) for bookie in running))
        for bookie, written in zip(running, answers, strict=True):
            if written is not None:
                self._last[bookie.pid] = written
                if self._is_first_reading:
                    self._first[bookie.pid] = written
        self._is_first_reading = False

    @property
    def written_bytes(self) -> int:
        """Bytes written to their logs; a process that was started later counts from its start."""
        return sum(last - self._first.get(pid, 0) for pid, last in self._last.items())


async def _log_bytes(bookie: LocalBookie) -> int | None:
    try:
        state = await get_json(f"{bookie.admin_url}/api/v1/state", timeout_s=READ_TIMEOUT_S)
    except AdminApiError:
        return None
    storage = state.get("storage") if isinstance(state, dict) else None
    written = storage.get(LOG_BYTES) if isinstance(storage, dict) else None
    return written if isinstance(written, int) else None
