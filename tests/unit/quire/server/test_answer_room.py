"""Room for answers: reserved, shared between clients, and given back whatever happens."""

import asyncio

from quire.identity.shares import FairQueue
from quire.server.connection_context import AnswerRoom


def room_of(account: FairQueue, holder: str) -> AnswerRoom:
    return AnswerRoom(account, 60, lambda: holder)


async def test_a_client_has_at_most_its_share_and_waits_for_more() -> None:
    account = FairQueue(100, 60, 9)
    first, second, other = room_of(account, "a"), room_of(account, "a"), room_of(account, "b")
    assert first.usable(90) == 60
    assert first.reserve_now(60)
    assert not second.has_room(1)
    assert other.reserve_now(40), "others are served"
    waiting = asyncio.create_task(second.reserve(30))
    await asyncio.sleep(0.01)
    assert account.is_waited_for
    assert first.settle(20, spent=60), "the answer was made, and a part of it is sent"
    await waiting
    assert len(account) == 20 + 30 + 40
    assert first.settle(0)
    for room in (first, second, other):
        room.close()
    assert len(account) == 0


async def test_unsent_bytes_without_room_are_not_counted() -> None:
    account = FairQueue(100, 60, 9)
    room = room_of(account, "a")
    assert room.settle(60)
    assert not room.settle(61)
    assert len(account) == 60
    assert room.settle(10)
    assert len(account) == 10


async def test_a_lost_connection_leaves_its_turn() -> None:
    account = FairQueue(10, 10, 9)
    first, lost, cancelled = (room_of(account, "a") for _ in range(3))
    assert first.reserve_now(10)
    waiting = [asyncio.create_task(room.reserve(5)) for room in (lost, cancelled)]
    await asyncio.sleep(0.01)
    lost.close()
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert not account.is_waited_for
    first.close()
    assert len(account) == 0
    lost.release(5)
    assert lost.settle(7)
    assert len(account) == 0, "a closed room counts nothing"


async def test_nothing_is_reserved_for_a_lost_connection() -> None:
    account = FairQueue(10, 10, 9)
    room = room_of(account, "a")
    room.close()
    assert room.reserve_now(5)
    await room.reserve(5)
    assert len(account) == 0


async def test_a_cancelled_wait_gives_back_what_it_got() -> None:
    account = FairQueue(10, 10, 9)
    first, second = room_of(account, "a"), room_of(account, "b")
    assert first.reserve_now(10)
    waiting = asyncio.create_task(second.reserve(5))
    await asyncio.sleep(0.01)
    first.close()
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert len(account) == 0


async def test_a_client_keeps_the_name_by_which_it_holds_bytes() -> None:
    account, names = FairQueue(10, 10, 9), ["address"]
    room = AnswerRoom(account, 10, lambda: names[0])
    assert room.settle(4)
    names[0] = "User:a"
    assert room.settle(6)
    assert room.settle(0)
    assert room.is_empty
    assert room.settle(3)
    room.close()
    assert len(account) == 0
