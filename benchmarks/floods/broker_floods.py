"""Requests of bad clients of a broker: Fetches that are not read, fetch sessions that grow, and
many small requests at once.

Leaves connections to `benchmarks.floods.broker_link`.

Source: KIP-227, KIP-482.
"""

import asyncio
import struct
from collections.abc import Sequence
from random import Random
from typing import Final

from benchmarks.brokers.request_frame import request_frame
from benchmarks.floods.broker_link import BrokerLink
from benchmarks.floods.crowd import Arrive, Crowd, read_all
from benchmarks.floods.flood_job import BAD_HOST, FloodRun
from broker_layer.errors import TopicError
from broker_layer.kafka.primitives import NO_TAGS, varint
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerConnection

FETCH_VERSION: Final = 16
FETCH_BYTES: Final = 2**30
"""More than a broker returns at once."""
NO_SESSION: Final = (0, -1)
"""Id and epoch of a Fetch without a session."""
NEW_SESSION: Final = (0, 0)
PROBE_PERIOD_S: Final = 1.0
SMALL_REQUEST: Final = request_frame(ApiKey.API_VERSIONS, 0)
"""One that is always allowed."""
TOPIC_ID_BYTES: Final = 16

_PARTITION: Final = struct.Struct(">iiqiqi")
_ANSWER: Final = struct.Struct(">ihi")
"""Begin of an answer: throttle time, error, session."""


def fetch_body(session: tuple[int, int], topic_id: bytes, partitions: bytes, count: int) -> bytes:
    """Return a Fetch of partitions of one topic."""
    head = struct.pack(">iiibii", 0, 1, FETCH_BYTES, 0, *session)
    topic = topic_id + varint(count + 1) + partitions + NO_TAGS
    return head + varint(2) + topic + varint(1) + varint(1) + NO_TAGS


def _partitions(numbers: Sequence[int]) -> bytes:
    rows = [_PARTITION.pack(number, -1, 0, -1, -1, FETCH_BYTES) + NO_TAGS for number in numbers]
    return b"".join(rows)


async def flood_with_fetches(run: FloodRun) -> None:
    """Ask for the largest answers, and read none."""
    link = BrokerLink(run.job.target.broker, run.job.target.client_file, BAD_HOST)
    access = link.access(run.job.target.user, run.job.target.password_file)
    topic_id = bytes.fromhex(run.job.target.topic_id)
    body = fetch_body(NO_SESSION, topic_id, _partitions([0]), 1)

    async def fetch(arrive: Arrive) -> None:
        _, writer = await link.logged_in(access)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            writer.write(request_frame(ApiKey.FETCH, FETCH_VERSION, body))
            await writer.drain()
            run.counts.requests += 1
            arrive()
            while not writer.transport.is_closing():
                # Without reading, the end is noticed only at the next write.
                await asyncio.sleep(PROBE_PERIOD_S)
                writer.write(SMALL_REQUEST)
        finally:
            writer.transport.abort()

    await Crowd(run, Random(1)).run(*[fetch] * run.job.size.connections)


async def flood_with_sessions(run: FloodRun) -> None:
    """Begin a fetch session, and add more partitions to it with each request."""
    size = run.job.size
    link = BrokerLink(run.job.target.broker, run.job.target.client_file, BAD_HOST)
    access = link.access(run.job.target.user, run.job.target.password_file)
    rng = Random(1)
    many = _partitions(range(size.each))

    async def grow(arrive: Arrive) -> None:
        connection = PeerConnection(*await link.logged_in(access), "bad client")
        try:
            await _grow(run, connection, many, rng, arrive)
        except TopicError:  # the connection ended
            pass
        finally:
            connection.close("the flood ends")

    await Crowd(run, rng).run(*[grow] * size.connections)


async def flood_with_requests(run: FloodRun) -> None:
    """Send many small requests at once, and read their answers."""
    size = run.job.size
    link = BrokerLink(run.job.target.broker, run.job.target.client_file, BAD_HOST)
    access = link.access(run.job.target.user, run.job.target.password_file)

    async def ask(arrive: Arrive) -> None:
        reader, writer = await link.logged_in(access)
        reading = asyncio.create_task(read_all(reader))
        arrive()
        try:
            while not reading.done():
                writer.write(SMALL_REQUEST * size.each)
                await writer.drain()
                run.counts.requests += size.each
                await asyncio.sleep(size.each / size.per_s)
        finally:
            reading.cancel()
            writer.transport.abort()

    await Crowd(run, Random(1)).run(*[ask] * size.connections)


async def _grow(
    run: FloodRun, connection: PeerConnection, many: bytes, rng: Random, arrive: Arrive
) -> None:
    """Send requests at the rate of the flood; begin again with a session that is refused."""
    size, loop = run.job.size, asyncio.get_running_loop()
    session, one = NEW_SESSION, _partitions([0])
    while True:
        due_s = loop.time() + size.each / size.per_s
        is_new = session == NEW_SESSION
        rows, count = (one, 1) if is_new else (many, size.each)
        body = fetch_body(session, rng.randbytes(TOPIC_ID_BYTES), rows, count)
        answer = await connection.call(ApiKey.FETCH, FETCH_VERSION, body)
        _, error, number = _ANSWER.unpack_from(answer)
        run.counts.requests += 1
        run.counts.denied += not number
        session = (number, session[1] + 1) if number and not error else NEW_SESSION
        if not is_new:
            arrive()
        if not is_new or session == NEW_SESSION:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
