"""Speed of repair: how fast one worker may copy, and when it slows down for clients.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.copying import CopyThrottle
from metadata.ids import BookieId
from metadata.repair.settings import DEFAULTS, RepairSettings
from quire.server.server_log import ServerLog, loop_time

PART_MIN: Final = 1 / 16
"""Least part of its limits that a bookie keeps."""


class SlowBookies:
    """Parts of their limits that bookies keep whose appends are slow, or were lately.

    A part halves at each look at which the appends are slow, down to PART_MIN, so that a repair
    never stops; it doubles at each other look. Only bookies whose part is below 1 are kept.
    """

    def __init__(self) -> None:
        self._parts: dict[BookieId, float] = {}

    def __iter__(self) -> Iterator[BookieId]:
        """Return the bookies whose part is below 1."""
        return iter(tuple(self._parts))

    def note(self, bookie_id: BookieId, *, is_slow: bool) -> None:
        """Record what one look at a bookie showed."""
        part = self.part(bookie_id)
        part = max(PART_MIN, part / 2) if is_slow else part * 2
        if part < 1:
            self._parts[bookie_id] = part
        else:
            self._parts.pop(bookie_id, None)

    def part(self, bookie_id: BookieId) -> float:
        """Return the part of its limits that copying from and to a bookie may use."""
        return self._parts.get(bookie_id, 1.0)


UNLIMITED_BYTES_PER_S: Final = 100_000_000
"""Ceiling of a bookie of which a part is used when there is no ceiling, in bytes per second."""


class BookieThrottles:
    """Throttles of bookies in one direction, each with the same ceiling.

    One is kept until what it admitted has passed, so that copies that follow each other share it.
    """

    def __init__(self, slow: SlowBookies) -> None:
        self._slow = slow
        self._bytes_per_s: float | None = None
        self._share = 1.0
        self._throttles: dict[BookieId, CopyThrottle] = {}

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Bookies that copies used lately."""
        return tuple(self._throttles)

    def limit(self, bytes_per_s: int, share: float) -> None:
        """Change the ceiling of each bookie, and this worker's share of it. 0 for no ceiling."""
        self._bytes_per_s = bytes_per_s or None
        self._share = share
        self.refresh()

    def refresh(self) -> None:
        """Use the current parts of slow bookies for requests from now on."""
        for bookie_id, throttle in self._throttles.items():
            throttle.limit(self._rate_of(bookie_id))

    def take(self, bookie_id: BookieId, size: int, now: float) -> float:
        """Count `size` bytes of a bookie; return the seconds to wait before they are used."""
        if bookie_id not in self._throttles:
            kept = {bookie: t for bookie, t in self._throttles.items() if t.left_s(now)}
            self._throttles = kept | {bookie_id: CopyThrottle(self._rate_of(bookie_id))}
        return self._throttles[bookie_id].take(size, now)

    def left_s(self, bookie_id: BookieId, now: float) -> float:
        """Return the seconds until all that was counted of a bookie has passed."""
        throttle = self._throttles.get(bookie_id)
        return 0.0 if throttle is None else throttle.left_s(now)

    def _rate_of(self, bookie_id: BookieId) -> float | None:
        part, ceiling = self._slow.part(bookie_id), self._bytes_per_s
        if ceiling is None and part == 1.0:
            return None
        return (UNLIMITED_BYTES_PER_S if ceiling is None else ceiling) * self._share * part


class CopyPath:
    """Throttle of one copy: the slowest of the cluster's, its target's and its source's.

    A source is known only when it has answered, so each copy may be one request ahead of its
    ceiling.
    """

    def __init__(
        self,
        cluster: CopyThrottle,
        target: BookieId,
        targets: BookieThrottles,
        sources: BookieThrottles,
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._targets = targets
        self._sources = sources
        self._source: BookieId | None = None
        """Source of the last request."""

    def take(self, size: int, now: float, source: BookieId | None) -> float:
        """Count `size` bytes in all of them; return the seconds to wait before they are used."""
        waits = [self._cluster.take(size, now), self._targets.take(self._target, size, now)]
        if source is not None:
            waits.append(self._sources.take(source, size, now))
        self._source = source
        return max(waits)

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed in all of them."""
        lefts = [self._cluster.left_s(now), self._targets.left_s(self._target, now)]
        if self._source is not None:
            lefts.append(self._sources.left_s(self._source, now))
        return max(lefts)


SLOT_WAIT_S_MAX: Final = 60.0
"""Maximum time for which a copy waits until its target gets fewer copies."""
_log = ServerLog(loop_time)


class CopyShares:
    """Shares of the copying that one worker may do, and its counts.

    It uses its part of each ceiling, divided by the number of workers. A target gets no more than
    `fragments_per_bookie` of its copies at once. Copies from and to a bookie are slowed while its
    appends are slower than the mark.
    """

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
            _log.info("repair slowed", bookie=bookie_id, append_p99_ms=p99_ms, mark_ms=mark_ms)
        elif was_slow and not is_slow:
            _log.info("repair at full speed", bookie=bookie_id)

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


LOOK_EVERY_S: Final = 5.0
"""Time between two looks: a bookie's answer is about the last five to ten seconds."""
PING_S_MAX: Final = 2.0


class AppendWatch:
    """Looks at how slow clients' appends are at the bookies that take part in copies.

    Each is asked once per look, for at most PING_S_MAX. One that does not answer counts as one
    without appends.
    """

    def __init__(self, pool: BookiePool, shares: CopyShares) -> None:
        self._pool = pool
        self._shares = shares

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        bookies = self._shares.watched
        answers = await asyncio.gather(*[self._p99_us(bookie) for bookie in bookies])
        for bookie_id, p99_us in zip(bookies, answers, strict=True):
            self._shares.note_p99(bookie_id, p99_us)

    async def _p99_us(self, bookie_id: BookieId) -> int:
        try:
            return (await self._pool.ping(bookie_id, timeout_s=PING_S_MAX)).append_p99_us
        except BookieCallError:
            return 0
