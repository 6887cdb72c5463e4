"""Bounds of fetch sessions: of each, of one holder, of all, and with their connections."""

from collections.abc import Iterable, Sequence
from random import Random

import pytest

from broker_layer.handlers import SLICE_ELEMENTS, Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.server import fetch_sessions
from broker_layer.server.fetch_sessions import (
    FetchOwner,
    FetchPlan,
    FetchPosition,
    FetchSessions,
    SessionPartition,
)
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, serving
from tests.until import until

ANN, BOB = FetchOwner("User:ann", 1), FetchOwner("User:bob", 2)


class World:
    """Sessions of 4 clients with 20 partitions in all."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(4, 20, Random(1))

    def ask(
        self,
        owner: FetchOwner,
        partitions: Iterable[int],
        session_id: int = 0,
        epoch: int = 0,
        forgotten: Sequence[SessionPartition] = (),
        now_s: float = 0.0,
        topic: str = "a",
    ) -> FetchPlan:
        asked = [FetchPosition(topic, partition, 0, 100, -1, -1) for partition in partitions]
        return self.sessions.plan(
            session_id, epoch, asked, forgotten, owner=owner, uses_topic_ids=False, now_s=now_s
        )


@pytest.fixture
def world() -> World:
    return World()


def test_a_session_that_goes_on_is_bounded_too(world: World) -> None:
    first = world.ask(ANN, range(6))
    more = world.ask(ANN, range(6, 10), first.session_id, 1)
    assert (more.error, len(more.positions)) == (ErrorCode.NONE, 10)
    full = world.ask(ANN, [10], first.session_id, 2)
    assert (full.error, full.positions) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
    assert len(world.sessions) == 0
    assert world.ask(ANN, range(10)).session_id != 0, "its partitions were counted once"


def test_one_session_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 3)
    first = world.ask(ANN, range(3))
    assert world.ask(ANN, [3], first.session_id, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.ask(ANN, range(4)).session_id == 0


def test_no_session_keeps_a_name_that_no_topic_can_have(world: World) -> None:
    assert world.ask(ANN, range(2), topic="a" * 250).session_id == 0
    kept = world.ask(ANN, range(2), topic="a" * 249)
    more = world.ask(ANN, [0], kept.session_id, 1, topic="b" * 250)
    assert more.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(world.sessions) == 0


def test_partitions_that_leave_make_room(world: World) -> None:
    first = world.ask(ANN, range(10))
    gone = [("a", each) for each in (0, 1, 1, 99)]
    assert len(world.ask(ANN, (), first.session_id, 1, gone).positions) == 8
    assert len(world.ask(ANN, [20, 21], first.session_id, 2).positions) == 10


def test_a_holder_leaves_room_for_others(world: World) -> None:
    numbers = [world.ask(ANN, [0]).session_id for _ in range(3)]
    assert [bool(number) for number in numbers] == [True, True, False]
    assert world.ask(BOB, range(10)).session_id
    assert world.ask(BOB, [0]).session_id == 0, "its partitions are too many"


def test_no_client_makes_room_with_sessions_of_others_within_their_shares(world: World) -> None:
    idle = world.ask(BOB, [0])
    for _ in range(3):
        world.ask(ANN, [0], now_s=200.0)
    assert world.ask(BOB, (), idle.session_id, 1, now_s=201.0).error == ErrorCode.NONE


def test_a_session_belongs_to_its_holder(world: World) -> None:
    number = world.ask(ANN, [0]).session_id
    assert world.ask(BOB, [1], number, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    world.ask(BOB, [], number, -1)
    assert world.ask(ANN, [1], number, 1).error == ErrorCode.NONE


def test_sessions_end_with_the_connection_that_used_them_last(world: World) -> None:
    moved, left = (world.ask(ANN, [0]).session_id for _ in range(2))
    world.ask(FetchOwner(ANN.holder, 7), (), moved, 1)
    world.sessions.end_of(1)
    assert world.ask(ANN, (), left, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.ask(ANN, (), moved, 2).error == ErrorCode.NONE
    world.sessions.end_of(1)
    assert len(world.sessions) == 0
    world.sessions.end_of(1)


async def test_a_closed_connection_ends_its_session() -> None:
    async with serving(MemoryTopics({("orders", 0): MemoryLog()})) as broker:
        client = await broker.connect()
        client.send_fetch(Ask({"orders": {0: Wanted()}}, session_epoch=0))
        assert (await client.fetched()).session_id
        assert broker.services.counters.fetch_sessions_now == 1
        client.writer.close()
        await until(lambda: broker.services.counters.fetch_sessions_now == 0)


async def test_a_fetch_of_many_partitions_passes_the_loop_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed, pass_on = 0, Turns.pass_on

    async def counted(turns: Turns) -> None:
        nonlocal passed
        passed += 1
        await pass_on(turns)

    monkeypatch.setattr(Turns, "pass_on", counted)
    logs = {("orders", number): MemoryLog() for number in range(500)}
    async with serving(MemoryTopics(logs)) as broker:
        client = await broker.connect()
        client.send_fetch(Ask({"orders": {number: Wanted() for number in range(500)}}))
        answer = await client.fetched()
        assert len(answer.responses[0].partitions) == 500
    assert passed >= 500 // SLICE_ELEMENTS
