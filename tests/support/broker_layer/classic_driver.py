"""Driver of one classic group: the clock moves only on request, actions run at once."""

from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.values import (
    AnswerJoin,
    AnswerSync,
    ClassicAction,
    ClassicImage,
    GroupsConfig,
    GroupState,
    JoinRequested,
    JoinResult,
    Moment,
    Protocols,
    StoreGroup,
    SyncRequested,
    SyncResult,
    Waiter,
)
from broker_layer.kafka.error_codes import ErrorCode

RANGE: Protocols = (("range", b"r"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Driver:
    """One group, its answers so far, and its images in the order in which they were stored."""

    def __init__(self, config: GroupsConfig | None = None) -> None:
        self.config = config or GroupsConfig(group_initial_rebalance_delay_ms=3_000)
        self.group = ClassicGroup("g", self.config)
        self.now_ms = 1_000
        self.joins: dict[Waiter, JoinResult] = {}
        self.syncs: dict[Waiter, SyncResult] = {}
        self.images: list[ClassicImage] = []
        self.is_storing = True
        self.unstored: list[int] = []
        self._count = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def state(self) -> GroupState:
        return self.group.state

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        id_required: bool = False,
        can_skip: bool = True,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client: str = "client",
    ) -> Waiter:
        waiter = self._waiter()
        event = JoinRequested(
            waiter,
            member_id,
            f"m{waiter}",
            instance,
            client,
            "/host",
            session_ms,
            rebalance_ms,
            protocol_type,
            protocols,
            id_required,
            can_skip,
        )
        self.perform(self.group.join(event, self.moment))
        return waiter

    def sync(
        self,
        member_id: str,
        *,
        generation: int | None = None,
        instance: str | None = None,
        assignments: dict[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Waiter:
        waiter = self._waiter()
        event = SyncRequested(
            waiter,
            member_id,
            instance,
            self.group.generation if generation is None else generation,
            protocol_type,
            protocol_name,
            tuple((assignments or {}).items()),
        )
        self.perform(self.group.sync(event, self.moment))
        return waiter

    def beat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        known = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, known, self.moment)

    def leave(self, *leaving: tuple[str, str | None]) -> list[ErrorCode]:
        outcomes, actions = self.group.leave(list(leaving), self.moment)
        self.perform(actions)
        return outcomes

    def advance(self, delay_ms: int) -> None:
        """Advance the clock, deadline by deadline."""
        until_ms = self.now_ms + delay_ms
        while (due_ms := self.group.next_deadline_ms()) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.perform(self.group.on_time(self.moment))
        self.now_ms = until_ms

    def perform(self, actions: list[ClassicAction]) -> None:
        for action in actions:
            match action:
                case AnswerJoin(waiter, join):
                    assert waiter not in self.joins, "answered once"
                    self.joins[waiter] = join
                case AnswerSync(waiter, sync):
                    assert waiter not in self.syncs, "answered once"
                    self.syncs[waiter] = sync
                case StoreGroup(image):
                    self.images.append(image)
                    self.unstored.append(image.generation)
                    if self.is_storing:
                        self.store()

    def store(self) -> None:
        while self.unstored:
            self.perform(self.group.stored(self.unstored.pop(0), self.moment))

    def stable(self, count: int, **options: str) -> list[str]:
        """Create a stable group of some members; the first id is the leader's."""
        instances = options.get("instances", "")
        waiters = [
            self.join(instance=f"{instances}{number}" if instances else None)
            for number in range(count)
        ]
        self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        members = [self.joins[waiter].member_id for waiter in waiters]
        self.sync_all(members)
        return members

    def sync_all(self, members: list[str]) -> None:
        """Sync the leader, then the others; each gets its own id as assignment."""
        leader = self.group.roster.leader_id
        assert leader is not None
        instances = {m: self.group.roster.members[m].instance_id for m in members}
        given = {member: member.encode() for member in members}
        self.sync(leader, assignments=given, instance=instances[leader])
        for member in members:
            if member != leader:
                self.sync(member, instance=instances[member])

    def _waiter(self) -> Waiter:
        self._count += 1
        return Waiter(self._count)
