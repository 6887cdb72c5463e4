"""For any sizes and pauses, a connection sends exactly the given bytes, in order."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.bookies.connection import JOINED_BYTES_MAX, PIECE_BYTES, ConnectionWrites
from quire.server.overriding import override

sizes = st.one_of(
    st.integers(0, 100),
    st.integers(JOINED_BYTES_MAX - 1, JOINED_BYTES_MAX + 1),
    st.integers(PIECE_BYTES - 1, 3 * PIECE_BYTES),
)


class Recorder(asyncio.Transport):
    """Transport that accepts everything, and reports when it is full."""

    def __init__(self, enough_after: list[int]) -> None:
        super().__init__()
        self.taken = bytearray()
        self.writes: list[int] = []
        self.enough_after = enough_after
        self.writer: ConnectionWrites | None = None

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.taken += data
        self.writes.append(len(data))
        if self.writer is not None and len(self.writes) in self.enough_after:
            self.writer.pause()

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return


@given(st.lists(sizes, max_size=12), st.lists(st.integers(1, 10), max_size=4))
def test_everything_is_sent_in_order(bodies: list[int], enough_after: list[int]) -> None:
    async def run() -> None:
        recorder = Recorder(enough_after)
        writes = ConnectionWrites(asyncio.get_running_loop())
        recorder.writer = writes
        writes.attach(recorder)
        expected = bytearray()
        for number, size in enumerate(bodies):
            header, body = b"header-%d" % number, bytes([number]) * size
            writes.send(header, body, at_once=False)
            expected += header + body
        assert writes.waiting_bytes == len(expected)
        assert recorder.taken == b"", "nothing is sent before the end of the tick"
        await asyncio.sleep(0)
        for _ in enough_after:
            writes.resume()
        assert recorder.taken == expected
        assert writes.waiting_bytes == 0
        assert max(recorder.writes, default=0) <= PIECE_BYTES + JOINED_BYTES_MAX

    asyncio.run(run())


async def test_small_frames_of_one_tick_are_one_write() -> None:
    recorder = Recorder([])
    writes = ConnectionWrites(asyncio.get_running_loop())
    writes.attach(recorder)
    for _ in range(100):
        writes.send(b"header", b"body", at_once=False)
    await asyncio.sleep(0)
    assert recorder.writes == [1000]


async def test_a_frame_sent_at_once_does_not_wait_for_the_end_of_the_tick() -> None:
    recorder = Recorder([])
    writes = ConnectionWrites(asyncio.get_running_loop())
    writes.attach(recorder)
    writes.send(b"alone", b"", at_once=True)
    assert recorder.taken == b"alone"
    writes.send(b" first", b"", at_once=False)
    writes.send(b" second", b"", at_once=True)
    assert recorder.taken == b"alone first second"
    await asyncio.sleep(0)
    assert recorder.taken == b"alone first second"


async def test_stopped_writes_send_nothing() -> None:
    recorder = Recorder([])
    writes = ConnectionWrites(asyncio.get_running_loop())
    writes.attach(recorder)
    writes.send(b"header", b"body", at_once=False)
    writes.stop()
    await asyncio.sleep(0)
    writes.resume()
    assert recorder.writes == []
    assert writes.waiting_bytes == 0
