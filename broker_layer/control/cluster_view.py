"""View of the cluster in one broker: topics, brokers, controller, and reports of in-sync replicas.

Leaves reading topics to `topic_follower.py`, the other stored values to `metadata`, and changes of
them to `controller.py` and `topic_changes.py`.

Invariants: each value in the view was stored at some time. After a lapse of the session,
`lease.has_lapsed` is true until all topics have been read again. `epoch` increases with each change
that a client can see.

Source: topics design, "The mapping".
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from broker_layer.control.session_lease import SessionLease
from broker_layer.control.topic_follower import TopicFollower
from metadata.brokers.broker_registry import BrokerDirectory, BrokerRegistration
from metadata.brokers.election import ControllerElection
from metadata.callbacks import Callbacks
from metadata.store.interface import Cancel, MetadataStore, SessionState
from metadata.topics.in_sync_reports import InSyncView
from metadata.topics.topic import NO_LEADER, TopicId, TopicRecord
from metadata.topics.topic_names import alike
from metadata.topics.topic_store import TopicStore

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
    """The cluster as last read; updated from `start` until `aclose`."""

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
        for each in registration.listeners if registration is not None else ():
            if each.name == listener:
                return each.host, each.port
        return None

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
