"""Scrub of one bookie: checks what it stores, slowly, and keeps its record in the metadata.

A scrub checks the ledgers in the order of their ids, and of each ledger the stored runs in the
order of their entries, as the index names them. So what no ledger needs any more is never read, and
cleaning may move runs at any time. `next_step` decides what is checked, and when; it is pure.
Leaves reading to the storage, and the repair of damaged entries to the processes of repair.

Invariants: one read at a time, followed by a pause; damage that a client's read finds is reported
in the same way as damage that the scrub finds; a metadata service that does not answer delays
reports and checks, and nothing else. A scrub that began continues where it was, also after a
restart; a request that comes during a scrub leads to one more scrub; nothing is checked while the
rate is 0.

Source: protocol rule 9.12; docs/repair.md, "Scrub".
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from bookie.errors import DescriptorsExhaustedError
from bookie.log.segments import DESCRIPTOR_WAIT_S
from bookie.storage.bookie_storage import BookieStorage
from metadata.backoff import Backoff
from metadata.errors import MetadataError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.scrub import NEVER_SCRUBBED, ScrubPosition, ScrubRecord
from metadata.repair.scrub_store import SCRUB_KIND, ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsView
from metadata.store.interface import MetadataStore
from quire.server.server_log import ServerLog

LEDGERS_PER_PAGE: Final = 256
REPORT_BAD_S: Final = 0.5
"""Delay of a report of damaged entries, so that ranges that are found together are stored once."""
REPORT_PROGRESS_S: Final = 60.0
"""Time between two reports of progress: a restart repeats at most the checks since the last one."""
REST_S_MAX: Final = 3_600.0
"""Maximum time between two looks at the clock, which may be set."""
READ_COST_BYTES: Final = 64 * 1024
"""Bytes that a read counts at least, because a disk needs time to find small runs."""
LOOKUP_COST_BYTES: Final = 4 * 1024
"""Bytes that a look-up without a read counts."""
PAUSE_S_MAX: Final = 60.0
"""Maximum pause between two reads, in seconds."""
FIRST_SCRUB_S_MAX: Final = 3_600
"""Maximum time from the first start of a bookie to its first scrub, in seconds."""
_START: Final = ScrubPosition(0, EntryId(0))


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be checked before this time, in ms since 1970; None without a plan."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Begin:
    """A scrub begins, with this record."""

    record: ScrubRecord


@dataclass(frozen=True, slots=True)
class Check:
    """The first stored run at or after this position is checked next."""

    position: ScrubPosition


Step = Rest | Begin | Check


def next_step(record: ScrubRecord, settings: RepairSettings, now_ms: int, first_ms: int) -> Step:
    """Return what comes next. `first_ms` is the time of a bookie's first scrub."""
    if not settings.scrub_bytes_per_s:
        return Rest(None)
    if record.position is not None:
        return Check(record.position)
    due_ms = _due_ms(record, settings, first_ms)
    if due_ms is None or due_ms > now_ms:
        return Rest(due_ms)
    return Begin(
        replace(
            record,
            served_ms=_requested_ms(record, settings),
            began_ms=now_ms,
            position=_START,
            checked_bytes=0,
        )
    )


def passed(
    record: ScrubRecord, ledger_id: LedgerId, next_entry_id: EntryId | None, read_bytes: int
) -> ScrubRecord:
    """Return the record after a check; no next entry means the end of the ledger."""
    if next_entry_id is None:
        after = ScrubPosition(ledger_id + 1, EntryId(0))
    else:
        after = ScrubPosition(ledger_id, next_entry_id)
    return replace(record, position=after, checked_bytes=record.checked_bytes + read_bytes)


def ended(record: ScrubRecord, now_ms: int) -> ScrubRecord:
    """Return the record after the last ledger."""
    return replace(record, position=None, ended_ms=now_ms)


def pause_s(read_bytes: int, settings: RepairSettings) -> float:
    """Return the pause after a check, in seconds."""
    cost = max(read_bytes, READ_COST_BYTES) if read_bytes else LOOKUP_COST_BYTES
    return min(PAUSE_S_MAX, cost / max(1, settings.scrub_bytes_per_s))


def _requested_ms(record: ScrubRecord, settings: RepairSettings) -> int:
    return max(record.requested_ms, settings.scrub_requested_ms)


def _due_ms(record: ScrubRecord, settings: RepairSettings, first_ms: int) -> int | None:
    if _requested_ms(record, settings) > record.served_ms:
        return 0
    if not settings.scrub_every_s:
        return None
    return record.began_ms + settings.scrub_every_s * 1000 if record.began_ms else first_ms


class Scrubber:
    """Scrub of one bookie, until `run` is cancelled."""

    def __init__(
        self,
        store: MetadataStore,
        rng: Random,
        bookie_id: BookieId,
        storage: BookieStorage,
        wall_clock_ms: Callable[[], int],
        log: ServerLog,
    ) -> None:
        self.record: ScrubRecord = NEVER_SCRUBBED
        """The record as it is to be stored, without the damaged ranges."""
        self._store = store
        self._scrubs = ScrubStore(store, rng)
        self._settings = RepairSettingsView(store, rng)
        self._bookie_id = bookie_id
        self._storage = storage
        self._wall_clock_ms = wall_clock_ms
        self._log = log
        self._backoff = Backoff(rng)
        self._now_s = asyncio.get_running_loop().time
        self._first_ms = wall_clock_ms() + int(rng.random() * FIRST_SCRUB_S_MAX * 1000)
        self._stored: ScrubRecord | None = None
        self._page: deque[LedgerId] = deque()
        self._free_at_s = 0.0
        """Time from which the next read may be made."""
        self._report_at_s: float | None = None
        """Time of the next report; None if there is nothing to report."""
        self._was_requested = False
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Check and report until cancelled. Raises DiskFailedError if the index fails."""
        cancels = [
            self._storage.bad_ranges.on_change(self._note_bad),
            self._store.watch_value(SCRUB_KIND.path(self._bookie_id), self._note_request),
            self._settings.on_change(self._wake.set),
        ]
        try:
            await self._restore()
            while True:
                self._wake.clear()
                await self._exchange()
                await self._step()
        finally:
            for cancel in cancels:
                cancel()
            await self._settings.aclose()

    async def _restore(self) -> None:
        """Read the settings and the record that the last process left; repeat until answered."""
        is_following = False
        while self._stored is None:
            try:
                if not is_following:
                    await self._settings.start()
                    is_following = True
                self._stored = await self._scrubs.get(self._bookie_id)
                self.record = replace(self._stored, is_unreadable=False)
            except MetadataError as error:
                self._log.warning("scrub not started, trying again", reason=str(error))
                await asyncio.sleep(self._backoff.next_s())
        self._backoff.count = 0
        self._storage.bad_ranges.restore(self._stored.bad)
        await self._drop_gone()

    async def _drop_gone(self) -> None:
        """Drop the ranges of ledgers that this bookie does not hold any more."""
        bad = self._storage.bad_ranges
        named = list(dict.fromkeys(bad_range.ledger_id for bad_range in bad.report()))
        held = dict.fromkeys(await self._storage.find_held(named))
        for ledger_id in named:
            if ledger_id not in held:
                bad.drop(ledger_id)

    # -- the record --------------------------------------------------------------------------------

    def _note_bad(self) -> None:
        self._report_within(REPORT_BAD_S)

    def _note_request(self) -> None:
        self._was_requested = True
        self._report_within(0.0)

    def _report_within(self, seconds: float) -> None:
        due_s = self._now_s() + seconds
        if self._report_at_s is None or due_s < self._report_at_s:
            self._report_at_s = due_s
            self._wake.set()

    async def _exchange(self) -> None:
        """Read what an operator may have requested, and report, when that is due."""
        if self._report_at_s is None or self._report_at_s > self._now_s():
            return
        was_requested, self._was_requested, self._report_at_s = self._was_requested, False, None
        try:
            if was_requested:
                stored = await self._scrubs.get(self._bookie_id)
                self.record = replace(self.record, requested_ms=stored.requested_ms)
            await self._report()
            self._backoff.count = 0
        except MetadataError as error:
            self._log.warning("scrub not reported, trying again", reason=str(error))
            self._was_requested |= was_requested
            self._report_within(self._backoff.next_s())

    async def _report(self) -> None:
        bad = self._storage.bad_ranges.report()
        record = replace(self.record, bad=bad)
        assert self._stored is not None, "the record was read"
        if bad and bad != self._stored.bad:
            entries = self._storage.bad_ranges.entry_count
            self._log.warning("entries damaged", ranges=len(bad), entries=entries, first=bad[0])
        if record != self._stored:
            self._stored = await self._scrubs.put(self._bookie_id, record)

    # -- checks ------------------------------------------------------------------------------------

    async def _step(self) -> None:
        now_ms = self._wall_clock_ms()
        step = next_step(self.record, self._settings.settings, now_ms, self._first_ms)
        match step:
            case Rest(until_ms):
                rest_s = REST_S_MAX if until_ms is None else (until_ms - now_ms) / 1000
                await self._wait(min(rest_s, REST_S_MAX))
            case Begin(record):
                self.record = record
                self._page.clear()
                self._report_within(0.0)
                self._log.info("scrub began")
            case Check(position):
                if self._now_s() < self._free_at_s:
                    await self._wait(self._free_at_s - self._now_s())
                else:
                    await self._check(position)

    async def _wait(self, seconds: float) -> None:
        """Wait for this time, the next report, or a change."""
        if self._report_at_s is not None:
            seconds = min(seconds, self._report_at_s - self._now_s())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()

    async def _check(self, position: ScrubPosition) -> None:
        ledger_id = await self._next_ledger(position)
        if ledger_id is None:
            await self._drop_gone()
            self.record = ended(self.record, self._wall_clock_ms())
            self._report_within(0.0)
            bad_entries = self._storage.bad_ranges.entry_count
            checked = self.record.checked_bytes
            self._log.info("scrub ended", checked_bytes=checked, bad_entries=bad_entries)
            return
        first = position.entry_id if ledger_id == position.ledger_id else EntryId(0)
        try:
            result = await self._storage.reads.check(ledger_id, first)
        except DescriptorsExhaustedError:
            self._free_at_s = self._now_s() + DESCRIPTOR_WAIT_S
            return
        read_bytes = result.read_bytes
        self.record = passed(self.record, ledger_id, result.next_entry_id, read_bytes)
        self._free_at_s = self._now_s() + pause_s(read_bytes, self._settings.settings)
        self._report_within(REPORT_PROGRESS_S)

    async def _next_ledger(self, position: ScrubPosition) -> LedgerId | None:
        """Return the first held ledger at or after a position."""
        while self._page and self._page[0] < position.ledger_id:
            self._page.popleft()
        after: int | None = position.ledger_id - 1
        while not self._page and after is not None:
            page, after = await self._storage.list_ledgers(after, LEDGERS_PER_PAGE)
            self._page.extend(page)
        return self._page[0] if self._page else None
