"""Changes of topics in the cluster's metadata: creation, partitions, settings and deletion.

Leaves Kafka's messages to `topic_admin.py` and `config_admin.py`, and the effects of a change to
the brokers' views. Any broker may change a topic.

Invariants: a refused change changes nothing; a topic is stored with the replication factor that it
was created with; the number of partitions of an internal topic never changes.

Source: Kafka's CreateTopics, CreatePartitions, DeleteTopics (KIP-4, KIP-195, KIP-464).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from broker_layer.control.assignment import Loads, spread
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, INTERNAL_TOPICS
from broker_layer.errors import TopicError, unknown_topic
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_config_table import REPLICATION_FACTOR, REPLICATION_FACTOR_MAX
from broker_layer.log.topic_configs import (
    checked_log_config,
    log_config,
    own_configs,
    without_effect,
)
from metadata.backoff import Backoff
from metadata.errors import (
    InvalidTopicNameError,
    MetadataError,
    TooManyPartitionsError,
    TopicExistsError,
    TopicNameHeldError,
    TopicNotFoundError,
    ValueTooLargeError,
)
from metadata.topics.topic import (
    PARTITIONS_MAX,
    TOPIC_ID_BYTES,
    TopicId,
    TopicRecord,
    check_topic_name,
    new_topic,
)
from metadata.topics.topic_names import alike
from metadata.topics.topic_store import TopicStore

LOOK_UP_PAUSE_S: Final = 0.5
"""Minimum time between two look-ups of an unknown name, in seconds."""
LOOK_UPS_MAX: Final = 100
"""Maximum number of topics that one request makes a broker look up. Others are answered as the view
shows them: it learns of new topics by itself, somewhat later.
"""
MISSED_MAX: Final = 10_000
CREATION_TIMEOUT_S: Final = 5.0
"""How long a request waits for a topic that it creates implicitly, in seconds."""
_log = logging.getLogger(__name__)

INTERNAL_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 requests the brokers' default. `leaders` are the leaders of its
    partitions; None spreads them over all brokers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    leaders: Sequence[int] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new settings of a topic for its stored ones. Raises TopicError."""


@dataclass(eq=False, repr=False)
class TopicChanges:
    """Changes topics. A refused call raises TopicError with Kafka's error code."""

    _view: ClusterView
    _topics: TopicStore
    _config: ControlConfig
    _wall_clock_ms: Callable[[], int]
    _bookie_count: Callable[[], int]
    """Returns the number of bookies that are up."""
    _rng: Random
    _missed_s: dict[str, float] = field(default_factory=dict, init=False)
    """Times of look-ups that failed, by name."""

    # -- creation --------------------------------------------------------------------------------

    def plan(self, wanted: NewTopic, loads: Loads | None = None) -> TopicRecord:
        """Check a topic to create; return its record, which is not stored yet. `loads` includes the
        partitions of other topics of the same request.
        """
        self._check_name(wanted.name)
        factor = self._replication_factor(wanted)
        stored = {**wanted.configs, REPLICATION_FACTOR: str(factor)}
        checked_log_config(stored, self._config.topic_defaults)
        leaders = wanted.leaders
        if leaders is None:
            count = wanted.partitions
            count = self._config.topic_defaults.partitions if count == -1 else count
            leaders = self._spread(count, loads or self.loads())
        self._check_leaders(leaders)
        topic_id = TopicId(self._rng.randbytes(TOPIC_ID_BYTES))
        now_ms = self._wall_clock_ms()
        is_internal = wanted.name in INTERNAL_TOPICS
        try:
            return new_topic(
                wanted.name, topic_id, now_ms, leaders, stored, is_internal=is_internal
            )
        except TooManyPartitionsError as error:
            raise TopicError(ErrorCode.INVALID_PARTITIONS, str(error)) from error

    async def store(self, record: TopicRecord, timeout_s: float) -> TopicRecord:
        """Store a planned topic. If a topic of its name is being deleted, wait until it is gone."""
        backoff = Backoff(self._rng)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            try:
                created = await self._topics.create(record)
            except TopicExistsError as error:
                if not error.is_being_deleted or loop.time() >= deadline_s:
                    raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, str(error)) from error
                await asyncio.sleep(backoff.next_s())
            except MetadataError as error:
                raise translated(error) from error
            else:
                _note_ineffective(created.name, created.configs)
                self._view.learn(created)
                return created

    async def ensure(self, name: str, timeout_s: float) -> TopicRecord:
        """Return a topic; create it with the brokers' defaults if it does not exist. Internal
        topics have separate settings and numbers of partitions.
        """
        known = self._view.topics.get(name)
        if known is not None:
            return known
        wanted = NewTopic(name)
        if name in INTERNAL_TOPICS:
            is_offsets = name == CONSUMER_OFFSETS
            config = self._config
            count = config.offsets_partitions if is_offsets else config.transaction_state_partitions
            wanted = NewTopic(name, partitions=count, configs=INTERNAL_CONFIGS)
        try:
            return await self.store(self.plan(wanted), timeout_s)
        except TopicError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return await self._read(name)

    async def ensured_partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic; create it as `ensure` does."""
        return len((await self.ensure(name, CREATION_TIMEOUT_S)).partitions)

    async def find(self, name: str) -> TopicRecord | None:
        """Look up a topic that the view does not show: another broker may have just created it.
        Return None if it does not exist or cannot be read.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._missed_s.get(name, -LOOK_UP_PAUSE_S) < LOOK_UP_PAUSE_S:
            return None
        try:
            return await self._read(name)
        except TopicError:
            if len(self._missed_s) >= MISSED_MAX:
                self._missed_s.clear()
            self._missed_s[name] = now_s
            return None

    def finder(self) -> Callable[[str], Awaitable[TopicRecord | None]]:
        """Return `find` for one request, which looks up at most LOOK_UPS_MAX topics."""
        names = iter(range(LOOK_UPS_MAX))

        async def find(name: str) -> TopicRecord | None:
            return None if next(names, None) is None else await self.find(name)

        return find

    def loads(self) -> Loads:
        """Count the partitions that each eligible broker leads now."""
        return Loads.of(self._view.topics.values(), self._view.may_lead())

    # -- changes ---------------------------------------------------------------------------------

    def plan_partitions(
        self, name: str, count: int, leaders: Sequence[int] | None, loads: Loads | None = None
    ) -> list[int]:
        """Check a new number of partitions; return the leaders of the partitions to add."""
        record = self._require(name)
        if name in INTERNAL_TOPICS:
            text = f"{name} is internal: its number of partitions cannot be changed"
            raise TopicError(ErrorCode.INVALID_PARTITIONS, text)
        more = _missing(record, count)
        if leaders is None:
            return self._spread(more, loads or self.loads())
        if len(leaders) != more:
            text = (
                f"the request adds {more} partitions, but has {len(leaders)} assignments: give one "
                "for each new partition"
            )
            raise TopicError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, text)
        self._check_leaders(leaders)
        return list(leaders)

    async def add_partitions(self, name: str, count: int, leaders: Sequence[int]) -> TopicRecord:
        """Add planned partitions, up to `count`. If another broker has added as many already,
        refuse it as `plan_partitions` does.
        """

        def grown(record: TopicRecord) -> TopicRecord:
            self._check_not_deleted(record)
            missing = _missing(record, count)
            if missing > len(leaders):  # the plan was for a deleted topic of this name
                raise unknown_topic(name)
            return record.with_partitions(leaders[-missing:])

        return await self._change(name, grown)

    def changed_configs(self, name: str, change: ConfigChange) -> Mapping[str, str]:
        """Check a change of settings, and return the result without storing it."""
        record = self._require(name)
        return self._checked(change, record)

    async def set_configs(self, name: str, change: ConfigChange) -> TopicRecord:
        """Alter a topic's settings."""

        def altered(record: TopicRecord) -> TopicRecord | None:
            self._check_not_deleted(record)
            configs = self._checked(change, record)
            return None if configs == dict(record.configs) else record.with_configs(configs)

        changed = await self._change(name, altered)
        _note_ineffective(name, changed.configs)
        return changed

    async def delete(self, name: str) -> TopicRecord:
        """Mark a topic as deleted; the controller then erases it."""
        record = self._require(name)
        if name in INTERNAL_TOPICS:
            text = f"{name} is internal, and cannot be deleted: groups or transactions need it"
            raise TopicError(ErrorCode.INVALID_REQUEST, text)
        topic_id = record.topic_id

        def deleted(stored: TopicRecord) -> TopicRecord | None:
            if stored.is_deleted or stored.topic_id != topic_id:
                raise unknown_topic(name)
            return stored.with_deletion()

        return await self._change(name, deleted)

    # -- checks ----------------------------------------------------------------------------------

    def check_name_form(self, name: str) -> None:
        """Raise TopicError if a name is not valid for a topic."""
        try:
            check_topic_name(name)
        except InvalidTopicNameError as error:
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error

    def _check_name(self, name: str) -> None:
        self.check_name_form(name)
        if name in self._view.topics:
            text = f"topic {name!r} exists already: use it, or choose another name"
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
        self.check_alike(name, self._view.topic_names_alike)

    def check_alike(self, name: str, known: Mapping[str, str]) -> None:
        """Raise TopicError if a name differs from one of `known` only in `.` and `_`. `known` maps
        the results of `alike` to names.
        """
        other = known.get(alike(name))
        if other is not None:
            raise translated(TopicNameHeldError(name, other))

    def _replication_factor(self, wanted: NewTopic) -> int:
        factor = wanted.replication_factor
        if factor == -1:
            written = wanted.configs.get("write.quorum", "")
            default = self._config.topic_defaults.replication_factor
            return int(written) if written.isdecimal() else default
        if not 1 <= factor <= REPLICATION_FACTOR_MAX:
            text = f"a replication factor must be 1 to {REPLICATION_FACTOR_MAX}, not {factor}"
            raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if factor > self._bookie_count():
            text = (
                f"{factor} replicas need {factor} bookies, but {self._bookie_count()} are up: "
                "start more, or use a lower replication factor"
            )
            raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        return factor

    def _spread(self, count: int, loads: Loads) -> list[int]:
        if not 1 <= count <= PARTITIONS_MAX:
            text = f"a topic must have 1 to {PARTITIONS_MAX} partitions, not {count}"
            raise TopicError(ErrorCode.INVALID_PARTITIONS, text)
        if not loads.counts:
            raise TopicError(
                ErrorCode.BROKER_NOT_AVAILABLE, "no broker is up that may lead the topic: start one"
            )
        return spread(count, loads)

    def _check_leaders(self, leaders: Sequence[int]) -> None:
        for leader in leaders:
            if leader not in self._view.brokers:
                text = f"broker {leader} is not up: start it, or assign another broker"
                raise TopicError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, text)

    def _checked(self, change: ConfigChange, record: TopicRecord) -> Mapping[str, str]:
        configs = dict(change(record.configs))
        if own_configs(configs) != own_configs(record.configs):
            log_config(configs, self._config.topic_defaults)
        return configs

    def _require(self, name: str) -> TopicRecord:
        record = self._view.topics.get(name)
        if record is None:
            raise unknown_topic(name)
        return record

    @staticmethod
    def _check_not_deleted(record: TopicRecord) -> None:
        if record.is_deleted:
            raise unknown_topic(record.name)

    # -- the store -------------------------------------------------------------------------------

    async def _change(
        self, name: str, change: Callable[[TopicRecord], TopicRecord | None]
    ) -> TopicRecord:
        try:
            record = await self._topics.change(name, change)
        except MetadataError as error:
            raise translated(error) from error
        self._view.learn(record)
        return record

    async def _read(self, name: str) -> TopicRecord:
        try:
            record, _ = await self._topics.get(name, fresh=True)
        except MetadataError as error:
            raise translated(error) from error
        self._check_not_deleted(record)
        self._view.learn(record)
        return record


def translated(error: MetadataError) -> TopicError:
    """Translate an error of the metadata service to Kafka's error codes."""
    match error:
        case InvalidTopicNameError() | TopicNameHeldError():
            return TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
        case TopicNotFoundError():
            return TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error))
        case TooManyPartitionsError():
            return TopicError(ErrorCode.INVALID_PARTITIONS, str(error))
        case ValueTooLargeError():
            return TopicError(ErrorCode.INVALID_CONFIG, str(error))
        case _:
            return TopicError(ErrorCode.REQUEST_TIMED_OUT, str(error))


def _note_ineffective(name: str, configs: Mapping[str, str]) -> None:
    """Log the settings of a topic that have no effect."""
    if names := without_effect(configs):
        _log.info("settings have no effect here topic=%s settings=%s", name, ",".join(names))


def _missing(record: TopicRecord, count: int) -> int:
    """Return the number of partitions to add. Raises TopicError if there are `count` or more."""
    missing = count - len(record.partitions)
    if missing <= 0:
        text = (
            f"{record.name} has {len(record.partitions)} partitions:"
            f" the new number must be higher than that, not {count}"
        )
        raise TopicError(ErrorCode.INVALID_PARTITIONS, text)
    return missing
