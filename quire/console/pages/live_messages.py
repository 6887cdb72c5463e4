"""New messages of a partition as they are appended, as Server-Sent Events.

Leaves fetching and decoding to `quire.console.topics`.

Format: `record` with `{"offset": 5, "time": "...", "key": "...", "value": "..."}`, `skipped` with a
number of records that came too fast, `problem` with a text, after which the stream ends.

Invariants: a console has at most STREAMS_MAX streams, each for at most STREAM_S_MAX and with at
most ROWS_PER_STEP records in STEP_S.
"""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from broker_layer.kafka.errors import RecordBatchError
from broker_layer.peer import PeerAddress
from quire.console.context import ConsoleContext, Pages, Route
from quire.console.pages.messages_page import PARTITION_MAX, readable_topic
from quire.console.paging import asked_number
from quire.console.topics.access import cluster_brokers
from quire.console.topics.records import RecordRow, batches_of, fetch, next_offset_of, row_of
from quire.operate.brokers import BrokerAccess, NoBrokerError, TopicRefusedError, require
from quire.operate.fields import describe_time
from quire.operate.topics import LATEST, Place, leader_of, leaders_in, offsets_at, topic_metadata
from quire.server.overriding import override

STREAMS_MAX: Final = 20
STREAM_S_MAX: Final = 3_600.0
STEP_S: Final = 0.25
ROWS_PER_STEP: Final = 50
FETCH_WAIT_MS: Final = 1_000


class LiveMessages(Pages):
    """Streams of new messages."""

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._streams = 0

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (Route("GET", "/topics/{topic}/live", self._stream, limit_s=None),)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= STREAMS_MAX:
            text = f"{STREAMS_MAX} streams are open already: close another page"
            raise web.HTTPTooManyRequests(text=text)
        self._streams += 1
        try:
            return await self._follow(request)
        finally:
            self._streams -= 1

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["topic"]
        async with cluster_brokers(self._context) as brokers:
            metadata = await topic_metadata(brokers, [name])
            try:
                readable_topic(metadata.topics[0], name)
            except TopicRefusedError as error:
                raise web.HTTPNotFound(text=str(error)) from error
            place = Place(name, asked_number(request.query, "partition", 0, PARTITION_MAX))
            leaders = leaders_in(metadata)
            leader = leader_of(leaders, place)
            ends = await offsets_at(brokers, leaders, [place], LATEST)
            if place not in ends:
                raise NoBrokerError(f"the leader of {name}-{place.partition} does not answer")
            answer = web.StreamResponse(
                headers={"Content-Type": "text/event-stream; charset=utf-8"}
            )
            await answer.prepare(request)
            with contextlib.suppress(ConnectionError):  # the browser has left
                try:
                    async with asyncio.timeout(STREAM_S_MAX):
                        await _send_new(answer, brokers, leader, place, ends[place].offset)
                except TimeoutError:
                    await _send(answer, "problem", "the time of this stream is over: begin again")
                except (NoBrokerError, TopicRefusedError, RecordBatchError) as error:
                    await _send(answer, "problem", str(error))
            return answer


async def _send_new(
    answer: web.StreamResponse,
    brokers: BrokerAccess,
    leader: PeerAddress,
    place: Place,
    offset: int,
) -> None:
    """Send records from an offset on until the connection or the leader fails."""
    while True:
        fetched = await fetch(brokers, leader, place, offset, max_wait_ms=FETCH_WAIT_MS)
        require(fetched.error_code)
        rows, skipped = newest_rows(fetched.records, offset)
        if skipped:
            await _send(answer, "skipped", skipped)
        for row in rows:
            await _send(answer, "record", _as_json(row))
        if not rows:
            await answer.write(b": nothing new\n\n")  # finds out whether the browser is there
        offset = max(offset, next_offset_of(fetched.records) or 0)
        await asyncio.sleep(STEP_S)


def newest_rows(data: bytes, offset: int) -> tuple[list[RecordRow], int]:
    """Return the last ROWS_PER_STEP records at or after an offset, and the number of those before
    them. Raises RecordBatchError.
    """
    found = [
        (record, header.is_transactional)
        for header, records in batches_of(data)
        for record in records
        if record.offset >= offset
    ]
    skipped = max(0, len(found) - ROWS_PER_STEP)
    rows = [
        row_of(record, is_transactional=is_transactional, form="auto")
        for record, is_transactional in found[skipped:]
    ]
    return rows, skipped


def _as_json(row: RecordRow) -> dict[str, str | int]:
    return {
        "offset": row.offset,
        "time": describe_time(row.time_ms),
        "key": row.key.text,
        "value": row.value.text,
    }


async def _send(answer: web.StreamResponse, event: str, value: object) -> None:
    # JSON has no newline that is not escaped, so one line of data holds it.
    await answer.write(f"event: {event}\ndata: {json.dumps(value)}\n\n".encode())
