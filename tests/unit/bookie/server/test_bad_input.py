"""Any input gets a typed answer or closes its connection, and affects no other connection."""

import asyncio
import logging
import random
import socket
import struct
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.wire.frames import FIRST_FRAME_BYTES_MAX, FRAME_MAGIC, FrameKind, frame_header
from bookie.wire.messages import Pong, ReadEntries, Refused, Status
from metadata.ids import EntryId, LedgerId
from quire.server.server_log import LOGGER
from tests.support.bookie.running_server import BOOKIE, LIMITS, RunningServer, serve
from tests.support.bookie.wire_client import WireClient, batch_of, hello
from tests.until import until

SOCKET_BUFFER_BYTES = 64 * 1024


def _request(values: object, request_id: int = 900) -> bytes:
    body = msgpack.packb(values)
    return frame_header(FrameKind.REQUEST, request_id, len(body)) + body


CLOSING = {
    "garbage": b"\xde\xad\xbe\xef" * 10,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20),
    "unknown kind": struct.pack("<HBBII", FRAME_MAGIC, 99, 0, 1, 0),
    "unknown flags": struct.pack("<HBBII", FRAME_MAGIC, FrameKind.ADD, 0x80, 1, 0),
    "oversized": struct.pack("<HBBII", FRAME_MAGIC, FrameKind.ADD, 0, 1, 2**24 + 1),
    "negative length": struct.pack("<HBBIi", FRAME_MAGIC, FrameKind.ADD, 0, 1, -1),
    "oversized request": struct.pack("<HBBII", FRAME_MAGIC, FrameKind.REQUEST, 0, 1, 2**17),
    "a reply": frame_header(FrameKind.REPLY, 1, 0),
    "acks": frame_header(FrameKind.ACKS, 0, 8) + bytes(8),
    "entries": frame_header(FrameKind.ENTRIES, 0, 24) + bytes(24),
    "second hello": _request([1, BOOKIE, 1, 1, 0, b"", "c"]),
}


@pytest.mark.parametrize("data", CLOSING.values(), ids=CLOSING.keys())
async def test_malformed_stream_closes_the_connection(served: RunningServer, data: bytes) -> None:
    other, bad = await served.client(1), await served.client(1)
    bad.send(data)
    assert await bad.is_closed_by_peer()
    assert served.counters.bad_frames == 1
    assert await other.add(batch_of(1, 0)) is Status.OK
    await other.close()


BEFORE_HELLO = {
    "add": frame_header(FrameKind.ADD, 1, 0),
    "ping": _request([9]),
    "read": _request([6, 1, 0, 0, 10, False]),
    "not msgpack": frame_header(FrameKind.REQUEST, 1, 1) + b"\xc1",
    "large": frame_header(FrameKind.ADD, 1, FIRST_FRAME_BYTES_MAX + 1),
    "short hello": _request([1, BOOKIE]),
    "credentials too long": _request([1, BOOKIE, 1, 1, 0, bytes(9000), "c"]),
}


@pytest.mark.parametrize("data", BEFORE_HELLO.values(), ids=BEFORE_HELLO.keys())
async def test_nothing_is_done_before_a_hello(served: RunningServer, data: bytes) -> None:
    client = await WireClient.connect(served.address)
    client.send(data)
    assert await client.is_closed_by_peer()
    assert served.counters.peers_dropped == 1
    assert served.storage.add_count == 0


ANSWERED = {
    "unknown operation": [77, 1, 2, 3],
    "negative ledger": [4, -1, False],
    "ledger out of range": [4, 2**63, False],
    "negative entry": [6, 1, -1, 5, 100, False],
    "entry out of range": [6, 1, 0, 2**63 - 1, 100, False],
    "too few fields": [6, 1],
    "wrong type": [6, "1", 0, 0, 0, False],
    "short key": [2, 1, bytes(31)],
    "wait too long": [7, 1, 0, 3_600_000, 0],
    "a reply's operation": [65, 0, 0, 0, False],
    "not an array": 7,
    "nested": [[[[[]]]]],
}


@pytest.mark.parametrize("values", ANSWERED.values(), ids=ANSWERED.keys())
async def test_a_malformed_request_is_answered(served: RunningServer, values: object) -> None:
    client = await served.client(1)
    client.send(_request(values))
    refused = await client.answer(900)
    assert isinstance(refused, Refused)
    assert refused.status is Status.BAD_REQUEST
    assert await client.add(batch_of(1, 0)) is Status.OK, "the connection continues"
    await client.close()


async def test_damaged_batches_are_refused_one_by_one(served: RunningServer) -> None:
    client = await served.client(1)
    good = batch_of(1, 0, [b"abc", b"def"])
    rng = random.Random(5)
    for _ in range(200):
        damaged = bytearray(good)
        damaged[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        status = await client.add(damaged)
        assert status in (Status.BAD_REQUEST, Status.UNAUTHORIZED), status
    for size in range(len(good)):
        assert await client.add(good[:size]) is Status.BAD_REQUEST
    assert await client.add(good + b"x") is Status.BAD_REQUEST
    assert await client.add(good) is Status.OK
    await client.close()


async def test_every_split_of_a_conversation(served: RunningServer) -> None:
    client = await served.client(1)
    batch = batch_of(1, 0)
    data = frame_header(FrameKind.ADD, 700, len(batch)) + bytes(batch) + _request([9], 701)
    for split in range(1, len(data)):
        client.send(data[:split])
        await asyncio.sleep(0)
        client.send(data[split:])
        assert await client.ack(700) is Status.OK
        assert isinstance(await client.answer(701), Pong)
    await client.close()


async def test_one_byte_at_a_time(served: RunningServer) -> None:
    client = await WireClient.connect(served.address)
    body = msgpack.packb([1, BOOKIE, 1, 1, 0, b"", "c"])
    for byte in frame_header(FrameKind.REQUEST, 1, len(body)) + body + _request([9], 2):
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert await client.answer(2) == Pong(writable=True, append_p99_us=0)
    await client.close()


async def test_peer_without_hello_is_dropped(hasty: RunningServer) -> None:
    silent = await WireClient.connect(hasty.address)
    assert await silent.is_closed_by_peer()
    slow = await WireClient.connect(hasty.address)
    slow.send(b"\x46")
    assert await slow.is_closed_by_peer()


async def test_unfinished_frame_times_out() -> None:
    served = await serve(replace(LIMITS, frame_deadline_s=0.2))
    idle, client = await served.client(1), await served.client(1)
    client.send(frame_header(FrameKind.ADD, 1, 100) + bytes(50))
    assert await client.is_closed_by_peer()
    assert await idle.is_offered(), "an idle peer is not dropped"
    await idle.close()
    await served.server.close()


async def test_peer_that_does_not_read_is_paused_then_dropped() -> None:
    served = await serve(replace(LIMITS, write_stall_s=0.2))
    client = await served.client(1)
    assert await client.add(batch_of(1, 0, [bytes(500_000)])) is Status.OK
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # ours reads
    for _ in range(400):
        client.send_request(ReadEntries(LedgerId(1), EntryId(0), EntryId(0), 10**6, fence=False))
    await until(lambda: served.counters.peers_dropped > 0)
    assert served.storage.reads_running == 0
    assert served.counters.reads_from_disk < 400, "entries of unread answers are not read"
    client.abort()
    await served.server.close()


def _limit_socket_buffers(client: WireClient, served: RunningServer) -> None:
    """Limit the kernel's buffer for answers, independent of its defaults."""
    near = client.writer.get_extra_info("socket")
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    for connection in served.server.connections:
        assert connection._transport is not None
        far = connection._transport.get_extra_info("socket")
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)


async def test_unread_bytes_of_all_peers_are_limited() -> None:
    room = 2_200_000
    limits = replace(
        LIMITS,
        write_stall_crowded_s=0.3,
        unsent_bytes_max=room,
        read_bytes_max=10**6,
    )
    served = await serve(limits)
    good = await served.client(1)
    assert await good.add(batch_of(1, 0, [bytes(500_000)])) is Status.OK
    wanted = ReadEntries(LedgerId(1), EntryId(0), EntryId(0), 10**6, fence=False)
    deaf = []
    server, unsent = served.server, list[int]()
    for _ in range(4):
        client = await served.client(1)
        _limit_socket_buffers(client, served)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # ours reads
        for _ in range(20):
            client.send_request(wanted)
        deaf.append(client)
        assert await good.add(batch_of(1, 0, [bytes(500_000)])) is Status.OK
        for _ in range(10):
            await asyncio.sleep(0.01)
            unsent.append(sum(connection.unread_bytes for connection in server.connections))
    assert 0 < max(unsent) <= room, "also between two sweeps"
    answer = await good.request(wanted)  # it waits until peers are dropped for it
    assert answer is not None
    assert served.counters.peers_dropped > 0
    for client in [*deaf, good]:
        client.abort()
    await served.server.close()


async def test_bad_frames_cost_few_log_lines(
    served: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        for _ in range(15):
            client = await WireClient.connect(served.address)
            client.send(b"\0" * 12)
            assert await client.is_closed_by_peer()
    lines = [record for record in caplog.records if record.message == "bad frame"]
    assert len(lines) == 5
    assert served.counters.bad_frames == 15


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=6), st.booleans())
@settings(max_examples=60)
def test_garbage_never_takes_the_server_down(pieces: list[bytes], greeted: bool) -> None:
    async def scenario() -> None:
        served = await serve(LIMITS)
        client = await WireClient.connect(served.address)
        if greeted:
            await client.request(hello(BOOKIE))
        for piece in pieces:
            client.send(piece)
            await asyncio.sleep(0)
        client.abort()
        other = await served.client(1)
        assert await other.add(batch_of(1, 0)) is Status.OK
        await other.close()
        await served.server.close()
        assert served.counters.requests_failed == 0

    asyncio.run(scenario())
