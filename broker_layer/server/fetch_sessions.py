"""Fetch sessions: the partitions of a Fetch, and those that its answer must name (KIP-227).

Leaves reading the partitions to `fetch`.

Invariants: pure; a session's epoch rises by one with each request; an incremental answer omits a
partition only if nothing that the client knows of it has changed. The number of sessions and of
their partitions is limited, also while a session goes on; one holder has at most HOLDER_SHARE of
both. No session keeps a name that no topic can have, because it may be as large as a frame. A
session belongs to its holder, and ends with the connection that used it last.

Source: KIP-227; KIP-516 for topic ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.fetch_codec import TopicKey
from broker_layer.kafka.primitives import ELEMENTS_MAX
from metadata.topics.topic import NAME_CHARACTERS_MAX
from quire.identity.shares import Shares

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
NO_SESSION_EPOCH: Final = -1
SESSION_ID_MAX: Final = 2**31 - 1
EVICTABLE_AFTER_S: Final = 120.0
"""Idle time, in seconds, after which a session may be dropped to make room for a new one."""

SESSION_PARTITIONS_MAX: Final = ELEMENTS_MAX
"""Maximum number of partitions in one session: each of its Fetches looks at all of them, as if the
request named them.
"""
HOLDER_SHARE: Final = 2
"""One holder has at most one of so many parts of the sessions, and of their partitions."""

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


@dataclass(frozen=True, slots=True)
class FetchOwner:
    """Who sends a Fetch."""

    holder: str
    """The principal, or the address of a client without one."""
    connection_id: int


@dataclass(slots=True)
class FetchSession:
    """Partitions of a client's Fetches, which the client need not repeat in each request."""

    session_id: int
    owner: FetchOwner
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
        self._places = Shares(sessions_max, max(1, sessions_max // HOLDER_SHARE))
        self._partitions = Shares(partitions_max, max(1, partitions_max // HOLDER_SHARE))
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """Sessions by id, in the order of their last use."""
        self._of_connection: dict[int, dict[int, None]] = {}
        """Ids of sessions by the connections that used them last."""

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        asked: Iterable[FetchPosition],
        forgotten: Iterable[SessionPartition],
        *,
        owner: FetchOwner,
        uses_topic_ids: bool,
        now_s: float,
    ) -> FetchPlan:
        """Return the partitions of a request, and advance its session."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner.holder != owner.holder:
            session = None
        if epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            if session is not None:
                self._end(session)
            positions = {(position.topic, position.partition): position for position in asked}
            session = None
            if epoch == FIRST_EPOCH and positions:
                session = self._begin(positions, owner, uses_topic_ids=uses_topic_ids, now_s=now_s)
            return FetchPlan(
                ErrorCode.NONE, session, tuple(positions.values()), is_incremental=False
            )
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._advance(session, asked, forgotten, now_s):
            self._end(session)  # the client goes on with all its partitions in one request
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._use(session, owner)
        positions_now = tuple(session.positions.values())
        return FetchPlan(ErrorCode.NONE, session, positions_now, is_incremental=True)

    def _advance(
        self,
        session: FetchSession,
        asked: Iterable[FetchPosition],
        forgotten: Iterable[SessionPartition],
        now_s: float,
    ) -> bool:
        """Change the partitions of a session; return False if it has no room for them."""
        holder, added = session.owner.holder, dict[SessionPartition, FetchPosition]()
        for position in asked:
            key = (position.topic, position.partition)
            known = session.positions.get(key)
            if known is None:
                added[key] = position
            else:
                known.offset, known.bytes_max = position.offset, position.bytes_max
                known.leader_epoch = position.leader_epoch
                known.last_fetched_epoch = position.last_fetched_epoch
        if not _is_bounded(len(session.positions), added) or not self._partitions.take(
            holder, len(added)
        ):
            return False
        session.positions |= added
        before = len(session.positions)
        for key in forgotten:
            session.positions.pop(key, None)
        self._partitions.give_back(holder, before - len(session.positions))
        session.epoch = 1 if session.epoch == SESSION_ID_MAX else session.epoch + 1
        session.used_s = now_s
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return True

    def _begin(
        self,
        positions: dict[SessionPartition, FetchPosition],
        owner: FetchOwner,
        *,
        uses_topic_ids: bool,
        now_s: float,
    ) -> FetchSession | None:
        holder, count = owner.holder, len(positions)
        if not _is_bounded(0, positions):
            return None
        self._make_room(holder, count, now_s)
        if not self._has_room(holder, count):
            return None  # the client continues without a session
        session_id = self._rng.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, SESSION_ID_MAX)
        epoch = FIRST_EPOCH + 1
        session = FetchSession(session_id, owner, uses_topic_ids, epoch, now_s, positions)
        self._places.take(holder)
        self._partitions.take(holder, count)
        self._sessions[session_id] = session
        self._use(session, owner)
        return session

    def end_of(self, connection_id: int) -> None:
        """End the sessions that a connection used last, because it is closed."""
        for session_id in list(self._of_connection.get(connection_id, ())):
            self._end(self._sessions[session_id])

    def _has_room(self, holder: str, count: int) -> bool:
        return self._places.has_share(holder) and self._partitions.has_share(holder, count)

    def _make_room(self, holder: str, count: int, now_s: float) -> None:
        """End idle sessions, the oldest first: those of all while there is no room for any client,
        else those of the holder.
        """
        if self._has_room(holder, count):
            return
        for oldest in list(self._sessions.values()):
            if now_s - oldest.used_s < EVICTABLE_AFTER_S:
                return
            is_full = not (self._places.has_free() and self._partitions.has_free(count))
            if is_full or oldest.owner.holder == holder:
                self._end(oldest)
            if self._has_room(holder, count):
                return

    def _use(self, session: FetchSession, owner: FetchOwner) -> None:
        """Note on which connection a session is used."""
        self._leave(session)
        session.owner = owner
        self._of_connection.setdefault(owner.connection_id, {})[session.session_id] = None

    def _leave(self, session: FetchSession) -> None:
        connection_id = session.owner.connection_id
        used = self._of_connection.get(connection_id, {})
        used.pop(session.session_id, None)
        if not used:
            self._of_connection.pop(connection_id, None)

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._leave(session)
        self._places.give_back(session.owner.holder)
        self._partitions.give_back(session.owner.holder, len(session.positions))


def _is_bounded(count: int, added: Iterable[SessionPartition]) -> bool:
    """Return whether a session with `count` partitions may have these too."""
    keys = list(added)
    is_small = count + len(keys) <= SESSION_PARTITIONS_MAX
    return is_small and all(len(topic) <= NAME_CHARACTERS_MAX for topic, _ in keys)


def _refused(error: ErrorCode) -> FetchPlan:
    return FetchPlan(error, None, (), is_incremental=False)
