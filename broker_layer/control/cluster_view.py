"""View of the cluster in one broker: topics, brokers, controller, and reports of in-sync replicas.

Leaves other stored values to `metadata`, and changes of them to `controller.py` and
`topic_changes.py`.

Source: topics design, "The mapping" and "What a takeover does"; protocol rule 1.3.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final

from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.brokers.broker_registry import BrokerDirectory, BrokerRegistration
from metadata.brokers.election import ControllerElection
from metadata.callbacks import Callbacks
from metadata.errors import (
    InvalidTopicNameError,
    MetadataError,
    MetadataFormatError,
    TopicNotFoundError,
)
from metadata.store.interface import Cancel, MetadataStore, SessionState
from metadata.topics.in_sync_reports import InSyncView
from metadata.topics.topic import NO_LEADER, TopicId, TopicRecord
from metadata.topics.topic_names import alike
from metadata.topics.topic_store import TopicStore

READS_AT_ONCE_MAX: Final = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic was created, changed, marked as deleted, or removed."""

    name: str


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """A broker joined, left, or changed its registration."""


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """Another broker became the controller, or there is none."""


@dataclass(frozen=True, slots=True)
class ReportsChanged:
    """A leader reported another set of in-sync replicas."""


@dataclass(frozen=True, slots=True)
class ViewSettled:
    """All topics that are known to have changed were read. The first event completes the view."""


ViewEvent = TopicChanged | BrokersChanged | ControllerChanged | ReportsChanged | ViewSettled


ViewCallback = Callable[[ViewEvent], None]


@dataclass(frozen=True, slots=True)
class ViewSources:
    """Sources of a view. The creator of each also starts and closes it."""

    store: MetadataStore
    topics: TopicStore
    brokers: BrokerDirectory
    election: ControllerElection
    reports: InSyncView


class ClusterView:
    """The cluster as last read; updated from `start` until `aclose`.

    Each value in the view was stored at some time. After a lapse of the session, `lease.has_lapsed`
    is true until all topics have been read again. `epoch` increases with each change that a client
    can see.
    """

    def __init__(self, sources: ViewSources, rng: Random, *, session_timeout_s: float) -> None:
        self.epoch = 0
        self.is_complete = False
        """Whether all topics were read at least once."""
        self.lease = SessionLease(sources.store, session_timeout_s)
        self._sources = sources
        self._follower = TopicFollower(
            sources.topics, rng, on_change=self._topic_changed, on_settled=self._settled
        )
        self._topics: dict[str, TopicRecord] = {}
        self._deleting: dict[str, TopicRecord] = {}
        self._names_of_ids: dict[TopicId, str] = {}
        self._names_alike: dict[str, str] = {}
        self._reread_number = 0
        self._callbacks = Callbacks[ViewEvent]()
        self._cancels: list[Cancel] = []

    def start(self) -> None:
        """Begin to follow changes; do not wait for the store."""
        self._cancels = [
            self._sources.store.on_session(self._session_changed),
            self._sources.brokers.on_change(lambda: self._notify(BrokersChanged())),
            self._sources.election.on_change(lambda: self._notify(ControllerChanged())),
            self._sources.reports.on_change(lambda: self._notify(ReportsChanged())),
        ]
        self._follower.start()

    async def aclose(self) -> None:
        """Stop following changes."""
        for cancel in self._cancels:
            cancel()
        self.lease.close()
        await self._follower.aclose()

    def on_event(self, callback: ViewCallback) -> Cancel:
        """Register a callback for changes; it is called after the view shows the change."""
        return self._callbacks.add(callback)

    def learn(self, record: TopicRecord) -> None:
        """Record a topic that this broker just stored."""
        self._follower.learn(record)

    # -- topics ----------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        """The topics that clients see."""
        return MappingProxyType(self._topics)

    @property
    def deleting(self) -> Mapping[str, TopicRecord]:
        """The topics that are marked as deleted but not erased yet."""
        return MappingProxyType(self._deleting)

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic that clients see."""
        return self._names_of_ids.get(TopicId(topic_id))

    def topic_id_of(self, name: str) -> TopicId | None:
        """Return the id of a topic that clients see."""
        record = self._topics.get(name)
        return None if record is None else record.topic_id

    @property
    def topic_names_alike(self) -> Mapping[str, str]:
        """The names of the topics that clients see, by what `alike` returns for them."""
        return MappingProxyType(self._names_alike)

    def topic_names(self) -> Iterable[str]:
        """Return the names of the topics that clients see."""
        return list(self._topics)

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions; 0 if there is no such topic."""
        record = self._topics.get(name)
        return 0 if record is None else len(record.partitions)

    def on_topics_change(self, callback: Callable[[], None]) -> Cancel:
        """Register a callback for topics that are created, removed or changed."""

        def handle(event: ViewEvent) -> None:
            if isinstance(event, TopicChanged):
                callback()

        return self.on_event(handle)

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return a partition's leader (NO_LEADER for none) and leader epoch; None if there is no
        such partition.
        """
        record = self._topics.get(topic)
        if record is None or not 0 <= partition < len(record.partitions):
            return None
        leadership = record.partitions[partition]
        return leadership.leader, leadership.leader_epoch

    # -- brokers ---------------------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """The brokers that are up."""
        return self._sources.brokers.brokers

    @property
    def controller_id(self) -> int:
        """The id of the controller; NO_LEADER if none is known."""
        controller_id = self._sources.election.controller_id
        return NO_LEADER if controller_id is None else controller_id

    @property
    def reports(self) -> InSyncView:
        """The leaders' reports about the replicas of their partitions."""
        return self._sources.reports

    async def reread_brokers(self) -> None:
        """Read which brokers are up now. Raises MetadataError."""
        await self._sources.brokers.refresh()

    def may_lead(self) -> list[int]:
        """Return the brokers that are up and not leaving."""
        return sorted(i for i, registration in self.brokers.items() if not registration.is_leaving)

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return the host and port of a broker for clients of a listener; None if it has none."""
        registration = self.brokers.get(broker_id)
        for endpoint in registration.listeners if registration is not None else ():
            if endpoint.name == listener:
                return endpoint.host, endpoint.port
        return None

    def reached_brokers(self, listener: str) -> Iterator[tuple[int, str, int, str | None]]:
        """Yield id, host, port and rack of each broker that clients of a listener can reach."""
        for broker_id, registration in sorted(self.brokers.items()):
            address = self.address_of(broker_id, listener)
            if address is not None:
                yield broker_id, *address, registration.rack or None

    def rack_of(self, broker_id: int) -> str | None:
        """Return the rack of a broker; None if it states none, or is not up."""
        registration = self.brokers.get(broker_id)
        return None if registration is None else registration.rack or None

    # -- changes ---------------------------------------------------------------------------------

    def _topic_changed(self, name: str, record: TopicRecord | None) -> None:
        old = self._topics.pop(name, None)
        self._deleting.pop(name, None)
        if old is not None:
            self._names_of_ids.pop(old.topic_id, None)
            if self._names_alike.get(alike(name)) == name:
                del self._names_alike[alike(name)]
        if record is not None and record.is_deleted:
            self._deleting[name] = record
        elif record is not None:
            self._topics[name] = record
            self._names_of_ids[record.topic_id] = name
            self._names_alike[alike(name)] = name
        self._notify(TopicChanged(name))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self.lease.must_reread:
            self._reread_number = self._follower.reread()

    def _settled(self, number: int) -> None:
        self.is_complete = True
        if self.lease.must_reread and number >= self._reread_number:
            self.lease.reread()
        self._notify(ViewSettled())

    def _notify(self, event: ViewEvent) -> None:
        if not isinstance(event, ViewSettled):
            self.epoch += 1
        self._callbacks.notify(event)


class SessionLease:
    """Whether a broker may still answer for its partitions, by its local clock; until `close`.

    Once the session may have ended, other brokers may lead this broker's partitions. The lease has
    then lapsed until all topics have been read again.
    """

    def __init__(self, store: MetadataStore, session_timeout_s: float) -> None:
        self._store = store
        self._timeout_s = session_timeout_s
        self._suspended_s: float | None = None
        self._must_reread = False
        self._timer: asyncio.TimerHandle | None = None
        self._callbacks = Callbacks[()]()
        self._note(store.session_state)
        self._cancel = store.on_session(self._note)

    @property
    def has_lapsed(self) -> bool:
        """Whether other brokers may now lead what this broker led."""
        # Timers may be late: after a delay of the loop or of the process, the broker must not
        # answer before they have run.
        if self._must_reread or self._store.session_state is SessionState.EXPIRED:
            return True
        if self._suspended_s is None:
            return False
        return asyncio.get_running_loop().time() - self._suspended_s >= self._timeout_s

    @property
    def must_reread(self) -> bool:
        """Whether the broker must read all topics again before it may answer."""
        return self._must_reread

    def reread(self) -> None:
        """Record that all topics were read again since the session was last known to be good."""
        if self._suspended_s is None:
            self._must_reread = False

    def on_lapse(self, callback: Callable[[], None]) -> Cancel:
        """Register a callback that is called at each lapse."""
        return self._callbacks.add(callback)

    def close(self) -> None:
        """Stop following the session."""
        self._cancel()
        self._stop_timer()

    def _note(self, state: SessionState) -> None:
        loop = asyncio.get_running_loop()
        match state:
            case SessionState.CONNECTED:
                if self.has_lapsed:
                    self._lapse()
                self._suspended_s = None
                self._stop_timer()
            case SessionState.SUSPENDED:
                if self._suspended_s is None:
                    self._suspended_s = loop.time()
                    self._timer = loop.call_later(self._timeout_s, self._lapse)
            case SessionState.EXPIRED | SessionState.CLOSED:
                if self._suspended_s is None:
                    self._suspended_s = loop.time()
                self._lapse()

    def _lapse(self) -> None:
        if self._must_reread:
            return
        self._must_reread = True
        self._stop_timer()
        self._callbacks.notify()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


ChangeCallback = Callable[[str, TopicRecord | None], None]
"""Called with a topic's name and its record, or None after the topic is gone."""


class TopicFollower:
    """All topics, including those marked as deleted, from `start` until `aclose`.

    `on_change` is called with each change after `records` shows it. `on_settled` is called whenever
    nothing is left to read, with the number of the last `reread` that is complete.

    A record is never replaced by an older one. A topic is dropped only when a successful read that
    began after it was learned says that it is gone.
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
