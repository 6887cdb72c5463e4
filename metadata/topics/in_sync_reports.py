"""Reports of the in-sync replicas of each partition, from its leader to all brokers.

Leaves the bytes to `in_sync.py`, and the in-sync set itself to the leader's ledgers.

Invariants: a broker's reports are one value, written by compare-and-set at most once per
`interval_s`; they stay after their broker ends, until it writes new ones; if several brokers report
a partition, the report with the newest leader epoch counts.

Source: topics design, "The mapping" (replicas, ISR); metadata design, "Storms"; protocol rule 1.2.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.paths import IN_SYNC, in_sync_path
from metadata.store.interface import Cancel, MetadataStore, SessionState
from metadata.store.records import ChildView, NodeNames
from metadata.topics.in_sync import InSyncReport, pack_reports, unpack_reports
from metadata.topics.partition import PartitionKey

if TYPE_CHECKING:
    from metadata.ids import Version

__all__ = ["InSyncReport", "InSyncReporter", "InSyncView"]

INTERVAL_S: Final = 0.5

_log = logging.getLogger(__name__)


class InSyncReporter:
    """Writes the reports of one broker, from `start` to `aclose`."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        rng: Random,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._store = store
        self._path = in_sync_path(broker_id)
        self._rng = rng
        self._interval_s = interval_s
        self._reports: dict[PartitionKey, InSyncReport] = {}
        self._version: Version | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start writing; the reports of an earlier process of this broker stay until the first
        write.
        """
        assert self._task is None, "started once"
        self._task = asyncio.get_running_loop().create_task(self._keep_writing())

    def report(self, key: PartitionKey, in_sync: InSyncReport) -> None:
        """Report the replicas of a partition with the next write."""
        if self._reports.get(key) != in_sync:
            self._reports[key] = in_sync
            self._wake.set()

    def withdraw(self, key: PartitionKey) -> None:
        """Stop reporting a partition that is gone or led by another broker."""
        if self._reports.pop(key, None) is not None:
            self._wake.set()

    async def aclose(self) -> None:
        """Stop writing; the last written reports stay."""
        await cancel_and_wait(self._task)

    async def _keep_writing(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write()
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("cannot write the report of replicas, trying again: %s", error)
                self._version = None
                self._wake.set()
                await asyncio.sleep(backoff.next_s())
            else:
                backoff.count = 0
                await asyncio.sleep(self._interval_s)

    async def _write(self) -> None:
        value, left_out = pack_reports(self._path, self._reports)
        if left_out:
            _log.warning("the replicas of %d partitions do not fit into the report", left_out)
        if self._version is None:
            try:
                self._version = (await self._store.get(self._path, fresh=True)).version
            except NodeNotFoundError:
                self._version = await self._store.create(self._path, value)
                return
        self._version = await self._store.compare_and_set(self._path, value, self._version)


class InSyncView(ChildView[str, dict[PartitionKey, InSyncReport]]):
    """Reports of all brokers, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(store, IN_SYNC, NodeNames[str](str, str), _reports_of, rng)

    def find(self, key: PartitionKey) -> InSyncReport | None:
        """Return the newest leader's report of a partition, or None if there is no report."""
        newest: InSyncReport | None = None
        for reports in self.records.values():
            report = reports.get(key)
            if report is not None and (newest is None or report.leader_epoch > newest.leader_epoch):
                newest = report
        return newest

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back when a broker changes its reports."""
        return self.on_record(lambda _broker, _before, _after: callback())


def _reports_of(key: str, value: bytes) -> dict[PartitionKey, InSyncReport]:
    return unpack_reports(f"{IN_SYNC}/{key}", value)
