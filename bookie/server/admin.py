"""HTTP routes of a bookie's admin port: its state, its ledgers, and switches.

Leaves the port, health and metrics to `quire.server.admin`, and the meaning of numbers and switches
to the storage.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from aiohttp import web

from bookie.identity.metadata_age import MetadataAge
from bookie.identity.own_lifecycle import OperatorSwitch
from bookie.server.server_context import ServerContext
from bookie.wire.messages import Status
from metadata.errors import MetadataError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, EntryId, LedgerId
from quire.server.admin import Readiness

PAGE_MAX: Final = 10_000
PAGE_DEFAULT: Final = 1_000
REASON_MAX: Final = 200
"""Maximum number of an error's characters in an answer's reason."""


@dataclass(eq=False, repr=False)
class BookieAdmin:
    """Routes of one bookie's admin port besides health and metrics."""

    _context: ServerContext
    _readiness: Readiness
    _identity: dict[str, str]
    _switch: OperatorSwitch
    _age: MetadataAge

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes."""
        return (
            web.get("/api/v1/state", self._state),
            web.get("/api/v1/ledgers", self._ledgers),
            web.get("/api/v1/ledgers/{ledger_id}/entries", self._entries),
            web.post("/api/v1/clean", self._clean),
            web.post("/api/v1/checkpoint", self._checkpoint),
            web.post("/api/v1/read-only", self._read_only),
            web.post("/api/v1/accept-metadata", self._accept_metadata),
        )

    async def _state(self, _: web.Request) -> web.Response:
        storage = self._context.storage
        return web.json_response(
            {
                **self._identity,
                "writable": storage.is_writable,
                "conditions": storage.writability.report(),
                "ready": self._readiness() is None,
                "connections": self._context.counters.connections_now,
                "ledger_count": storage.ledger_count,
                "storage": asdict(storage.statistics()),
            }
        )

    async def _ledgers(self, request: web.Request) -> web.Response:
        after = _number(request.query.get("after"), -1, LEDGER_ID_MAX, default=-1)
        limit = _number(request.query.get("limit"), 1, PAGE_MAX, default=PAGE_DEFAULT)
        page, end = await self._context.storage.list_ledgers(after, limit)
        answer: dict[str, object] = {"ledgers": page}
        if end is not None:
            answer["next_after"] = end
        return web.json_response(answer)

    async def _entries(self, request: web.Request) -> web.Response:
        ledger_id = LedgerId(_number(request.match_info["ledger_id"], 0, LEDGER_ID_MAX))
        first = EntryId(_number(request.query.get("first"), 0, ENTRY_ID_MAX, default=0))
        limit = _number(request.query.get("limit"), 1, PAGE_MAX, default=PAGE_DEFAULT)
        held = await self._context.storage.reads.entry_ranges(ledger_id, first, limit)
        if held.status in (Status.NO_SUCH_LEDGER, Status.DELETED):
            status = held.status.name.lower()
            raise web.HTTPNotFound(reason=f"ledger {ledger_id} is not stored here ({status})")
        return web.json_response(
            {
                "ledger_id": ledger_id,
                "status": held.status.name.lower(),
                "ranges": [list(pair) for pair in held.ranges],
                "complete": held.complete,
            }
        )

    async def _clean(self, _: web.Request) -> web.Response:
        return web.json_response({"freed_bytes": await self._context.storage.clean()})

    async def _checkpoint(self, _: web.Request) -> web.Response:
        await self._context.storage.checkpoint()
        mark = self._context.storage.statistics().checkpoint_mark
        return web.json_response({"checkpoint_mark": mark})

    async def _read_only(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            text = 'the body is not JSON: send {"read_only": true} or false'
            raise web.HTTPBadRequest(reason=text) from None
        wanted = body.get("read_only") if isinstance(body, dict) else None
        if not isinstance(wanted, bool) or len(body) != 1:
            raise web.HTTPBadRequest(reason='send {"read_only": true} or {"read_only": false}')
        await self._switch.switch(is_read_only=wanted)
        return web.json_response(
            {
                "read_only": wanted,
                "writable": self._context.storage.is_writable,
                "conditions": self._context.storage.writability.report(),
            }
        )

    async def _accept_metadata(self, _: web.Request) -> web.Response:
        try:
            accepted = await self._age.accept()
        except MetadataError as error:
            raise web.HTTPServiceUnavailable(reason=str(error)[:REASON_MAX]) from error
        return web.json_response(
            {
                "position_version": accepted.position_version,
                "ledger_ids": accepted.ledger_ids,
                "conditions": self._context.storage.writability.report(),
            }
        )


def _number(text: str | None, low: int, high: int, *, default: int | None = None) -> int:
    if text is None and default is not None:
        return default
    digits = (text or "").removeprefix("-")
    # Limited before it is parsed: a number of a million digits takes seconds.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))):
        shown = (text or "")[:40]
        raise web.HTTPBadRequest(reason=f"not a whole number from {low} to {high}: {shown!r}")
    value = int(text or "")
    if not low <= value <= high:
        raise web.HTTPBadRequest(reason=f"not from {low} to {high}: {value}")
    return value
