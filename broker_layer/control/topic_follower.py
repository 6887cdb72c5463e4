"""Cache of all topics' records, read again after each change.

Leaves the use of the records to `cluster_view.py`, and storing them to
`metadata.topics.topic_store`.

Invariants: a record is never replaced by an older one; a topic is dropped only when a successful
read that began after it was learned says that it is gone; each pass reads at most READS_AT_ONCE_MAX
records at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.errors import (
    InvalidTopicNameError,
    MetadataError,
    MetadataFormatError,
    TopicNotFoundError,
)
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

READS_AT_ONCE_MAX: Final = 64

_log = logging.getLogger(__name__)

ChangeCallback = Callable[[str, TopicRecord | None], None]
"""Called with a topic's name and its record, or None after the topic is gone."""


class TopicFollower:
    """All topics, including those marked as deleted, from `start` until `aclose`.

    `on_change` is called with each change after `records` shows it. `on_settled` is called whenever
    nothing is left to read, with the number of the last `reread` that is complete.
    """

    def __init__(
        self,
        topics: TopicStore,
        rng: Random,
        *,
        on_change: ChangeCallback,
        on_settled: Callable[[int], None],
    ) -> None:
        self._topics = topics
        self._rng = rng
        self._on_change = on_change
        self._on_settled = on_settled
        self._records: dict[str, TopicRecord] = {}
        self._watches: dict[str, Cancel] = {}
        self._due: dict[str, None] = {}
        self._stamps: dict[str, int] = {}
        self._names_due = True
        self._all_due = False
        """Whether all records are to be read once the names are."""
        self._reread_count = 0
        self._wake = asyncio.Event()
        self._cancel_names: Cancel | None = None
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begin to follow changes; continue while the store is unavailable."""
        assert self._cancel_names is None, "started once"
        self._cancel_names = self._topics.watch_names(self._mark_names)
        self._wake.set()
        self._tasks.start(self._follow())

    def reread(self) -> int:
        """Read all records again; return the number that `on_settled` gets when that is done.

        They are read after the names, for which the server catches up with its leader: reads that
        are under way may be of a server that lags.
        """
        self._reread_count += 1
        self._all_due = True
        self._mark_names()
        return self._reread_count

    def learn(self, record: TopicRecord) -> None:
        """Add a record that was just stored, before its watch reports it."""
        self._stamps[record.name] = self._stamps.get(record.name, 0) + 1
        self._watch(record.name)
        self._put(record.name, record)

    async def aclose(self) -> None:
        """Stop following changes; `records` keeps the last known state."""
        if self._cancel_names is not None:
            self._cancel_names()
        for cancel in self._watches.values():
            cancel()
        self._watches.clear()
        await self._tasks.aclose()

    def _mark_names(self) -> None:
        self._names_due = True
        self._wake.set()

    def _mark(self, name: str) -> None:
        self._due[name] = None
        self._wake.set()

    async def _follow(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            number = self._reread_count
            try:
                await self._read_what_is_due()
                backoff.count = 0
            except MetadataError as error:
                _log.debug("the view of topics was not updated; the broker tries again: %s", error)
                self._wake.set()
                await asyncio.sleep(backoff.next_s())
                continue
            if not self._wake.is_set():
                self._on_settled(number)

    async def _read_what_is_due(self) -> None:
        if self._names_due:
            self._names_due = False
            is_all_due, self._all_due = self._all_due, False
            stamps = dict(self._stamps)
            try:
                names = await self._topics.names()
            except MetadataError:
                self._names_due = True
                self._all_due |= is_all_due
                raise
            self._follow_names(names, stamps)
            if is_all_due:
                self._due.update(dict.fromkeys(self._watches))
        while self._due:
            batch = list(self._due)[:READS_AT_ONCE_MAX]
            results = await asyncio.gather(*map(self._read, batch), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def _follow_names(self, names: list[str], stamps: Mapping[str, int]) -> None:
        """Follow the listed topics. `stamps` are the stamps from before the listing was read: a
        topic that `learn` added since then may be missing from it.
        """
        present = dict.fromkeys(names)
        for name in [known for known in self._watches if known not in present]:
            if self._stamps.get(name, 0) != stamps.get(name, 0):
                continue
            self._watches.pop(name)()
            self._due.pop(name, None)
            self._put(name, None)
        for name in present:
            if name not in self._watches:
                try:
                    self._watch(name)
                except InvalidTopicNameError as error:
                    _log.warning("a node was ignored, it is not a topic: %s", error)
                    continue
                self._due[name] = None

    def _watch(self, name: str) -> None:
        if name not in self._watches:
            self._watches[name] = self._topics.watch(name, lambda: self._mark(name))

    async def _read(self, name: str) -> None:
        self._due.pop(name, None)
        stamp = self._stamps.get(name, 0)
        record: TopicRecord | None
        try:
            record, _ = await self._topics.get(name)
        except TopicNotFoundError:
            record = None
        except MetadataFormatError as error:
            _log.warning("a topic was ignored, its record is invalid: %s", error)
            return
        except MetadataError:
            self._due[name] = None
            raise
        if self._stamps.get(name, 0) == stamp:
            self._put(name, record)
        else:
            self._mark(name)  # `learn` added a newer record during the read

    def _put(self, name: str, record: TopicRecord | None) -> None:
        known = self._records.get(name)
        if known == record or (record is not None and known is not None and _older(record, known)):
            return
        if record is None:
            del self._records[name]
        else:
            self._records[name] = record
        self._on_change(name, record)


def _older(record: TopicRecord, known: TopicRecord) -> bool:
    """Return whether a record is older than the known one, because it is from a lagging server."""
    if record.topic_id != known.topic_id:
        return record.epoch_floor < known.epoch_floor
    if known.is_deleted != record.is_deleted:
        return known.is_deleted
    if len(record.partitions) < len(known.partitions):
        return True
    pairs = zip(record.partitions, known.partitions, strict=False)
    return any(new.leader_epoch < old.leader_epoch for new, old in pairs)
