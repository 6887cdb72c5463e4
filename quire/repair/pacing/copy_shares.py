"""Shares of the copying that one worker may do: of the cluster's ceiling, and of those of each
bookie that receives copies or is their source.

Leaves the settings to `metadata.repair.settings`, asking for the latency of appends to
`append_watch`, and copying to `quire.repair.ledger_repair`.

Invariants: a worker uses its part of each ceiling, divided by the number of workers; a target gets
no more than `fragments_per_bookie` copies of this worker at once. Copies from and to a bookie are
slowed while its appends are slower than the mark.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ledger_client.copying import CopyThrottle
from metadata.ids import BookieId
from metadata.repair.settings import DEFAULTS, RepairSettings
from quire.repair.pacing.slow_bookies import SlowBookies
from quire.repair.pacing.throttles import BookieThrottles, CopyPath

SLOT_WAIT_S_MAX: Final = 60.0
"""Maximum time for which a copy waits until its target gets fewer copies."""
_log = logging.getLogger(__name__)


class CopyShares:
    """Throttles and counts of one worker."""

    def __init__(self) -> None:
        self._cluster = CopyThrottle(None)
        self._slow = SlowBookies()
        self._targets = BookieThrottles(self._slow)
        self._sources = BookieThrottles(self._slow)
        self._p99_us_max = DEFAULTS.append_p99_ms_max * 1000
        self._under_way = Counter[BookieId]()
        self._fragments_max = 1
        self._freed = asyncio.Event()

    def follow(self, settings: RepairSettings, workers: int) -> None:
        """Use these settings from now on."""
        share = 1.0 / max(1, workers)
        self._cluster.limit(settings.bytes_per_s * share or None)
        self._targets.limit(settings.bookie_bytes_per_s, share)
        self._sources.limit(settings.source_bytes_per_s, share)
        self._p99_us_max = settings.append_p99_ms_max * 1000
        self._fragments_max = settings.fragments_per_bookie

    @property
    def watched(self) -> list[BookieId]:
        """Bookies whose latency of appends matters: they take part in copies, or are slowed."""
        used = (*self._targets.bookies, *self._sources.bookies) if self._under_way else ()
        return list(dict.fromkeys((*used, *self._slow)))

    def note_p99(self, bookie_id: BookieId, p99_us: int) -> None:
        """Slow the copies from and to a bookie if its appends are slower than the mark, else
        quicken them again. 0 if its latency is not known.
        """
        was_slow = self._slow.part(bookie_id) < 1.0
        self._slow.note(bookie_id, is_slow=0 < self._p99_us_max < p99_us)
        self._targets.refresh()
        self._sources.refresh()
        is_slow = self._slow.part(bookie_id) < 1.0
        if is_slow and not was_slow:
            p99_ms, mark_ms = p99_us / 1000, self._p99_us_max / 1000
            _log.info(
                "appends at %s are slow (p99 %g ms, the mark is %g ms): repair slows down there",
                bookie_id,
                p99_ms,
                mark_ms,
            )
        elif was_slow and not is_slow:
            _log.info("repair uses its full limits at %s again", bookie_id)

    def is_busy(self, target: BookieId) -> bool:
        """Return whether a bookie gets as many copies as it may."""
        return self._under_way[target] >= self._fragments_max

    async def wait_changed(self) -> bool:
        """Wait until a copy ends, at most SLOT_WAIT_S_MAX; return whether one did."""
        self._freed.clear()
        try:
            async with asyncio.timeout(SLOT_WAIT_S_MAX):
                await self._freed.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def copying_to(self, target: BookieId) -> Iterator[CopyPath]:
        """Count one copy to a bookie until the end of the block; yield its throttle."""
        self._under_way[target] += 1
        try:
            yield CopyPath(self._cluster, target, self._targets, self._sources)
        finally:
            self._under_way[target] -= 1
            if not self._under_way[target]:
                del self._under_way[target]
            self._freed.set()
