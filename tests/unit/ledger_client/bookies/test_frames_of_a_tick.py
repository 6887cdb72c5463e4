"""Number of writes for the frames of one loop iteration on one connection."""

import asyncio

from bookie.wire.messages import Ping, Pong, ReportLac
from ledger_client.bookies.connection_calls import CallFailure
from metadata.ids import EntryId, LedgerId
from tests.support.ledger_client.recorded_connection import Recorder, opened


async def test_frames_to_a_bookie_that_owes_answers_wait_for_the_end_of_the_tick() -> None:
    recorder = Recorder()
    connection = opened(recorder)
    for number in range(100):
        connection.attach(LedgerId(number), bytes(32))
        connection.send_one_way(ReportLac(LedgerId(number), EntryId(5)))
    assert recorder.writes == []
    await asyncio.sleep(0)
    assert len(recorder.writes) == 1
    connection.close(CallFailure.CLOSED, "done")


async def test_a_request_to_a_bookie_that_owes_nothing_is_sent_at_once() -> None:
    recorder = Recorder()
    connection = opened(recorder)
    first = asyncio.create_task(connection.call(Ping(), Pong))
    second = asyncio.create_task(connection.call(Ping(), Pong))
    await asyncio.sleep(0)
    assert len(recorder.writes) == 1
    await asyncio.sleep(0)
    assert len(recorder.writes) == 2
    connection.close(CallFailure.CLOSED, "done")
    await asyncio.gather(first, second, return_exceptions=True)
