"""Number of writes for the frames of one loop iteration on one connection."""

import asyncio

from bookie.wire.codec import encode_message
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import Hello, HelloReply, Ping, Pong, ReportLac, Status
from ledger_client.bookies.connection import BookieConnection
from ledger_client.bookies.connection_calls import CallFailure
from metadata.ids import BookieId, EntryId, LedgerId
from serving.overriding import override


class Recorder(asyncio.Transport):
    """Transport that accepts everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    @override
    def write(self, data: object) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        self.writes.append(len(data))

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    @override
    def abort(self) -> None:
        return


def _opened(recorder: Recorder) -> BookieConnection:
    bookie_id = BookieId("b-1")
    connection = BookieConnection(
        bookie_id,
        Hello(bookie_id, 1, 1, 0, b"", "test"),
        add_timeout_s=5.0,
        on_lost=lambda *_: None,
        on_latency=lambda *_: None,
    )
    connection.connection_made(recorder)
    body = encode_message(HelloReply(Status.OK, bookie_id, 1, 0, 2**24, 2**23, ""))
    data = frame_header(FrameKind.REPLY, 1, len(body)) + body
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert connection.is_open
    recorder.writes.clear()
    return connection


async def test_frames_to_a_bookie_that_owes_answers_wait_for_the_end_of_the_tick() -> None:
    recorder = Recorder()
    connection = _opened(recorder)
    for number in range(100):
        connection.attach(LedgerId(number), bytes(32))
        connection.send_one_way(ReportLac(LedgerId(number), EntryId(5)))
    assert recorder.writes == []
    await asyncio.sleep(0)
    assert len(recorder.writes) == 1
    connection.close(CallFailure.CLOSED, "done")


async def test_a_request_to_a_bookie_that_owes_nothing_is_sent_at_once() -> None:
    recorder = Recorder()
    connection = _opened(recorder)
    first = asyncio.create_task(connection.call(Ping(), Pong))
    second = asyncio.create_task(connection.call(Ping(), Pong))
    await asyncio.sleep(0)
    assert len(recorder.writes) == 1
    await asyncio.sleep(0)
    assert len(recorder.writes) == 2
    connection.close(CallFailure.CLOSED, "done")
    await asyncio.gather(first, second, return_exceptions=True)
