"""Page of a topic's messages: from an offset, from a time, or with a key.

Leaves reading to `quire.console.topics.records`, and decoding to `record_rows`.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from broker_layer.peer import PeerAddress
from quire.console.context import Pages, Route
from quire.console.paging import asked_number
from quire.console.topics.access import with_brokers
from quire.console.topics.offset_reset import OFFSET_MAX, time_of
from quire.console.topics.records import (
    BYTES_SHOWN_MAX,
    FORMS,
    ROWS_MAX,
    SCANNED_MAX,
    RecordPage,
    Wanted,
    read_records,
)
from quire.errors import UsageError
from quire.operate.brokers import BrokerAccess
from quire.operate.topics import (
    EARLIEST,
    LATEST,
    Place,
    ShownTopic,
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
        partitions = sorted(each.partition_index for each in topic.partitions)
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
        found = (await offsets_at(brokers, leaders, [place], _time_of(query["time"]))).get(place)
        # There is no record as new as that: begin at the end.
        return found.offset if found is not None and found.offset >= 0 else OFFSET_MAX
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
