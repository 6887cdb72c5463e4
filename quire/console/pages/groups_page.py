"""Pages of groups: the list, one group with its lag, and new offsets after their plan."""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from quire.console.context import Pages, Route, see_other
from quire.console.pages.topics_page import START_MAX
from quire.console.templating import asked_number, number_of, slice_of
from quire.console.topics.access import with_brokers
from quire.console.topics.groups import (
    OFFSET_MAX,
    GroupView,
    To,
    changes_in,
    commit_offsets,
    group_path,
    plan_reset,
    read_group,
    read_groups,
    time_of,
)
from quire.errors import UsageError
from quire.operate.brokers import BrokerAccess
from quire.operate.topics import topic_named
from quire.server.overriding import override

GROUP_PATH: Final = "/groups/{group:[^/]+}"
"""A group id has any characters: without a pattern, braces would not be taken."""
HAS_MEMBERS: Final = "the group has members: stop them first, then its offsets can be changed"


class GroupPages(Pages):
    """Pages of groups."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        context = self._context
        return (
            Route("GET", "/groups", with_brokers(context, "Groups", self._list)),
            Route("GET", GROUP_PATH, with_brokers(context, "Group", self._show)),
            Route("GET", f"{GROUP_PATH}/reset", with_brokers(context, "Group", self._plan)),
            Route("POST", f"{GROUP_PATH}/reset", with_brokers(context, "Group", self._reset)),
        )

    async def _list(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        groups = await read_groups(brokers)
        page = slice_of(groups.rows, asked_number(request.query, "from", 0, START_MAX))
        return self._context.page(
            request, "groups.html", page=page, total=len(groups.rows), silent=groups.silent
        )

    async def _show(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        group = await _group_of(request, brokers)
        return self._context.page(
            request,
            "group.html",
            group=group,
            address=group_path(group.group_id),
            topics=sorted({lag.place.topic for lag in group.lags}),
            ways=list(To),
        )

    async def _plan(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        group = await _group_of(request, brokers)
        if not group.may_reset:
            raise web.HTTPConflict(text=HAS_MEMBERS)
        topic = request.query.get("topic", "")
        to, value = _way(request)
        await topic_named(brokers, topic)
        return self._context.page(
            request,
            "group_reset.html",
            group=group,
            topic=topic,
            to=to,
            value=request.query.get("value", ""),
            address=group_path(group.group_id),
            changes=await plan_reset(brokers, group, topic, to, value),
        )

    async def _reset(self, request: web.Request, brokers: BrokerAccess) -> web.StreamResponse:
        form = await request.post()
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        try:
            offsets = changes_in(fields)
        except UsageError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        group = await _group_of(request, brokers)
        if not group.may_reset:
            raise web.HTTPConflict(text=HAS_MEMBERS)
        await commit_offsets(brokers, group.group_id, offsets)
        return see_other(request.rel_url.raw_path.removesuffix("/reset"))


async def _group_of(request: web.Request, brokers: BrokerAccess) -> GroupView:
    group = await read_group(brokers, request.match_info["group"])
    if group is None:
        raise web.HTTPNotFound(text="there is no such group")
    return group


def _way(request: web.Request) -> tuple[To, int]:
    """Return where a group shall continue, with the offset or the time."""
    value = request.query.get("value", "").strip()
    try:
        to = To(request.query.get("to", ""))
        if to is To.TIME:
            return to, time_of(value)
    except UsageError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    except ValueError:
        raise web.HTTPBadRequest(text="choose where the group shall continue") from None
    offset = number_of(value, -1, OFFSET_MAX)
    if to is To.OFFSET and offset < 0:
        raise web.HTTPBadRequest(text="write an offset, a whole number")
    return to, offset
