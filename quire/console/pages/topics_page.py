"""Pages of topics: the list, and one topic with its partitions, ledgers, settings and groups.

Leaves reading to `quire.console.topics`, and messages to `messages_page`.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from quire.console.asked import asked_number
from quire.console.context import ConsoleContext, Route
from quire.console.paging import slice_of
from quire.console.topics.access import with_brokers
from quire.console.topics.group_reading import groups_of
from quire.console.topics.topic_reading import NO_LEDGERS, SOURCES, read_topic
from quire.operate.brokers import BrokerAccess
from quire.operate.topics import read_topics

START_MAX: Final = 10**7


class TopicPages:
    """Pages of topics."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        context = self._context
        return (
            Route("GET", "/topics", with_brokers(context, "Topics", self._list)),
            Route("GET", "/topics/{topic}", with_brokers(context, "Topic", self._show)),
        )

    async def _list(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        rows = await read_topics(brokers)
        page = slice_of(rows, asked_number(request.query, "from", 0, START_MAX))
        problems = sum(bool(each.problem) for each in rows)
        return self._context.page(
            request, "topics.html", page=page, total=len(rows), problems=problems
        )

    async def _show(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        name = request.match_info["topic"]
        view = await read_topic(brokers, self._context.cluster, name)
        groups, groups_left_out = await groups_of(brokers, name)
        return self._context.page(
            request,
            "topic.html",
            name=name,
            view=view,
            no_ledgers=NO_LEDGERS,
            sources=SOURCES,
            groups=groups,
            groups_left_out=groups_left_out,
        )
