"""Page of a topic's messages: from an offset, from a time, with a key, or as they come.

Format: `record` with `{"offset": 5, "time": "...", "key": "...", "value": "..."}`, `skipped` with a
number of records that came too fast, `problem` with a text, after which the stream ends.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from broker_layer.kafka.errors import RecordBatchError
from broker_layer.peer import PeerAddress
from quire.console.context import ConsoleContext, Pages, Route
from quire.console.templating import asked_number
from quire.console.topics.access import cluster_brokers, with_brokers
from quire.console.topics.groups import OFFSET_MAX, time_of
from quire.console.topics.records import (
    BYTES_SHOWN_MAX,
    FORMS,
    ROWS_MAX,
    SCANNED_MAX,
    RecordPage,
    RecordRow,
    Wanted,
    batches_of,
    fetch,
    next_offset_of,
    read_records,
    row_of,
)
from quire.errors import UsageError
from quire.operate.brokers import BrokerAccess, NoBrokerError, TopicRefusedError, require
from quire.operate.fields import describe_time
from quire.operate.topics import (
    EARLIEST,
    LATEST,
    Place,
    ShownTopic,
    leader_of,
    leaders_in,
    offsets_at,
    require_topic,
    topic_metadata,
)
from quire.server.overriding import override

PARTITION_MAX: Final = 2**31 - 1
KEY_CHARACTERS_MAX: Final = 1_000


class MessagePages(Pages):
    """Messages of topics."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        handler = with_brokers(self._context, "Messages", self._show)
        return (Route("GET", "/topics/{topic}/messages", handler),)

    async def _show(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        name, query = request.match_info["topic"], request.query
        metadata = await topic_metadata(brokers, [name])
        topic = readable_topic(metadata.topics[0], name)
        partitions = sorted(row.partition_index for row in topic.partitions)
        partition = asked_number(query, "partition", partitions[0], PARTITION_MAX)
        if partition not in partitions:
            raise web.HTTPNotFound(text=f"{name} has no partition {partition}")
        place, leaders = Place(name, partition), leaders_in(metadata)
        form = query.get("form", "auto")
        key = query.get("key", "")[:KEY_CHARACTERS_MAX]
        offset = await _offset_of(query, brokers, leaders, place)
        if form not in FORMS:
            raise web.HTTPBadRequest(text=f"form must be one of {', '.join(FORMS)}")
        wanted = Wanted(place, offset, key.encode() if key else None, form)
        page = await read_records(brokers, leaders, wanted)
        kept = {"partition": partition, "form": form, **({"key": key} if key else {})}
        return self._context.page(
            request,
            "messages.html",
            name=name,
            partitions=partitions,
            partition=partition,
            offset=min(max(offset, page.start), page.end),
            time=query.get("time", ""),
            key=key,
            form=form,
            forms=FORMS,
            page=page,
            next_query=_query(kept, page.next_offset),
            previous_query=_query(kept, _previous(page, offset)),
            end_query=urlencode({**kept, "at": "end"}),
            rows_max=ROWS_MAX,
            scanned_max=SCANNED_MAX,
            bytes_shown_max=BYTES_SHOWN_MAX,
        )


async def _offset_of(
    query: Mapping[str, str],
    brokers: BrokerAccess,
    leaders: Mapping[Place, PeerAddress],
    place: Place,
) -> int:
    """Return the offset from which the page begins: of a time, near the end, as given, or the
    first one.
    """
    if query.get("time"):
        position = (await offsets_at(brokers, leaders, [place], _time_of(query["time"]))).get(place)
        # There is no record as new as that: begin at the end.
        return position.offset if position is not None and position.offset >= 0 else OFFSET_MAX
    if query.get("at") == "end":
        ends = await offsets_at(brokers, leaders, [place], LATEST)
        return max(0, ends[place].offset - ROWS_MAX) if place in ends else 0
    if query.get("offset"):
        return asked_number(query, "offset", 0, OFFSET_MAX)
    starts = await offsets_at(brokers, leaders, [place], EARLIEST)
    return starts[place].offset if place in starts else 0


def readable_topic(topic: ShownTopic, name: str) -> ShownTopic:
    """Return a topic whose messages may be shown. Raises TopicRefusedError if there is none;
    HTTPNotFound for a topic of coordinators.
    """
    require_topic(topic, name)
    if topic.is_internal:
        text = f"{name} holds the coordinators' state, which is not shown"
        raise web.HTTPNotFound(text=text)
    return topic


def _time_of(text: str) -> int:
    try:
        return time_of(text)
    except UsageError as error:
        raise web.HTTPBadRequest(text=str(error)) from error


def _previous(page: RecordPage, offset: int) -> int | None:
    """Return the offset from which the page before begins; None if this is the first one."""
    offset = min(offset, page.end)
    return max(page.start, offset - ROWS_MAX) if offset > page.start else None


def _query(kept: dict[str, object], offset: int | None) -> str:
    return "" if offset is None else urlencode({**kept, "offset": offset})


STREAMS_MAX: Final = 20
STREAM_S_MAX: Final = 3_600.0
STEP_S: Final = 0.25
ROWS_PER_STEP: Final = 50
FETCH_WAIT_MS: Final = 1_000


class LiveMessages(Pages):
    """Streams of new messages.

    A console has at most STREAMS_MAX streams, each for at most STREAM_S_MAX and with at most
    ROWS_PER_STEP records in STEP_S.
    """

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
    pairs = [
        (record, header.is_transactional)
        for header, records in batches_of(data)
        for record in records
        if record.offset >= offset
    ]
    skipped = max(0, len(pairs) - ROWS_PER_STEP)
    rows = [
        row_of(record, is_transactional=is_transactional, form="auto")
        for record, is_transactional in pairs[skipped:]
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
