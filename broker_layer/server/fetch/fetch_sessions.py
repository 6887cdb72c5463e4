"""Fetch sessions: the partitions of a Fetch, and those that its answer must name (KIP-227).

Leaves reading the partitions to `fetch_reading`.

Invariants: pure; a session's epoch rises by one with each request; an incremental answer omits a
partition only if nothing that the client knows of it has changed; the number of sessions and of
their partitions is limited.

Source: KIP-227; KIP-516 for topic ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
NO_SESSION_EPOCH: Final = -1
SESSION_ID_MAX: Final = 2**31 - 1
EVICTABLE_AFTER_S: Final = 120.0
"""Idle time, in seconds, after which a session may be dropped to make room for a new one."""

TopicKey = str | bytes
"""A topic's name, or from version 13 of Fetch on its id."""
SessionPartition = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchPosition:
    """One partition of a Fetch: offset, byte limit, and the client's last known offsets."""

    topic: TopicKey
    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int
    """The epoch that the client knows; -1 for none."""

    last_fetched_epoch: int
    known_high_watermark: int = -1
    known_log_start: int = -1

    def must_name(
        self, *, byte_count: int, error: int, high_watermark: int, log_start: int
    ) -> bool:
        """Return whether an incremental answer must name this partition; update what is known."""
        if error:
            self.known_high_watermark = -1  # so that the end of the error is reported
            return True
        has_new_ends = (
            self.known_high_watermark != high_watermark or self.known_log_start != log_start
        )
        self.known_high_watermark, self.known_log_start = high_watermark, log_start
        return has_new_ends or byte_count > 0


@dataclass(slots=True)
class FetchSession:
    """Partitions of a client's Fetches, which the client need not repeat in each request."""

    session_id: int
    uses_topic_ids: bool
    epoch: int
    """The epoch that the next request must have."""

    used_s: float
    positions: dict[SessionPartition, FetchPosition] = field(default_factory=dict)

    def put_last(self, position: FetchPosition) -> None:
        """Move a partition that returned records to the end of the order, for the next request."""
        key = (position.topic, position.partition)
        if self.positions.pop(key, None) is not None:
            self.positions[key] = position


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The partitions and the session of one Fetch."""

    error: ErrorCode
    session: FetchSession | None
    positions: tuple[FetchPosition, ...]
    is_incremental: bool

    @property
    def session_id(self) -> int:
        """The session id of the answer."""
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """The sessions of one broker's clients."""

    def __init__(self, sessions_max: int, partitions_max: int, rng: Random) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """Sessions by id, in the order of their last use."""
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        asked: Iterable[FetchPosition],
        forgotten: Iterable[SessionPartition],
        *,
        uses_topic_ids: bool,
        now_s: float,
    ) -> FetchPlan:
        """Return the partitions of a request, and advance its session."""
        if epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            self._end(session_id)
            positions = {(each.topic, each.partition): each for each in asked}
            session = None
            if epoch == FIRST_EPOCH and positions:
                session = self._begin(positions, uses_topic_ids=uses_topic_ids, now_s=now_s)
            return FetchPlan(
                ErrorCode.NONE, session, tuple(positions.values()), is_incremental=False
            )
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._advance(session, asked, forgotten, now_s)
        positions_now = tuple(session.positions.values())
        return FetchPlan(ErrorCode.NONE, session, positions_now, is_incremental=True)

    def _advance(
        self,
        session: FetchSession,
        asked: Iterable[FetchPosition],
        forgotten: Iterable[SessionPartition],
        now_s: float,
    ) -> None:
        before = len(session.positions)
        for each in asked:
            key = (each.topic, each.partition)
            known = session.positions.get(key)
            if known is None:
                session.positions[key] = each
            else:
                known.offset, known.bytes_max = each.offset, each.bytes_max
                known.leader_epoch = each.leader_epoch
                known.last_fetched_epoch = each.last_fetched_epoch
        for key in forgotten:
            session.positions.pop(key, None)
        self._partition_count += len(session.positions) - before
        session.epoch = 1 if session.epoch == SESSION_ID_MAX else session.epoch + 1
        session.used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _begin(
        self,
        positions: dict[SessionPartition, FetchPosition],
        *,
        uses_topic_ids: bool,
        now_s: float,
    ) -> FetchSession | None:
        self._make_room(len(positions), now_s)
        if (
            len(self._sessions) >= self._sessions_max
            or self._partition_count + len(positions) > self._partitions_max
        ):
            return None  # the client continues without a session
        session_id = self._rng.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, SESSION_ID_MAX)
        session = FetchSession(session_id, uses_topic_ids, FIRST_EPOCH + 1, now_s, positions)
        self._sessions[session_id] = session
        self._partition_count += len(positions)
        return session

    def _make_room(self, count: int, now_s: float) -> None:
        while self._sessions and (
            len(self._sessions) >= self._sessions_max
            or self._partition_count + count > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()))
            if now_s - oldest.used_s < EVICTABLE_AFTER_S:
                return
            self._end(oldest.session_id)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.positions)


def _refused(error: ErrorCode) -> FetchPlan:
    return FetchPlan(error, None, (), is_incremental=False)
