"""Page of one bookie, and its changes, each behind a page that shows the plan.

Leaves what is read to `quire.console.operations`, and the changes with their checks to
`quire.operate.bookie_changes`.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from bookie.storage.writability import ADVICE, DESCRIPTIONS, Reason, reasons_of
from metadata.ids import LEDGER_ID_MAX, BookieId
from quire.console.bookie_report import TEXTS, Act, BookieReport, allowed_acts, read_report
from quire.console.context import Pages, Route, see_other
from quire.console.paging import asked_number
from quire.operate.assessment import next_step
from quire.operate.bookie_changes import (
    NoSuchBookieError,
    change_all,
    drain_forecast,
    naming_of,
    records_of,
    remove_all,
    request_change,
    require_allowed,
)
from quire.operate.ledger_pass import LedgerPass
from quire.server.overriding import override

PLAN_S_MAX: Final = 5.0
"""Time for the pass of a plan; a plan of a larger cluster covers the ledgers read until then."""
REMOVAL_S_MAX: Final = 600.0
REASON_CHARACTERS_MAX: Final = 200
DAMAGED_SHOWN_MAX: Final = 100


class BookiePages(Pages):
    """Pages of single bookies."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (
            Route("GET", "/bookies/{bookie}", self._show),
            Route("GET", "/bookies/{bookie}/change", self._confirm),
            # A removal reads all ledgers first, which may take longer than a page.
            Route("POST", "/bookies/{bookie}/change", self._change, limit_s=REMOVAL_S_MAX),
        )

    async def _show(self, request: web.Request) -> web.Response:
        start = asked_number(request.query, "from", 0, LEDGER_ID_MAX)
        report = await self._report(request, start)
        registration = report.registration
        reasons = [] if registration is None else reasons_of(registration.features)
        return self._context.page(
            request,
            "bookie.html",
            report=report,
            state=report.state,
            next_step=next_step(report.bookie_id, report.record.state),
            reasons=[
                (DESCRIPTIONS[each], ADVICE[each].replace("ID", report.bookie_id))
                for each in reasons
            ],
            damaged=report.scrub.bad[:DAMAGED_SHOWN_MAX],
            lost_after_s=report.settings.lost_after_s,
            acts=[(each, TEXTS[each]) for each in _acts_of(report)],
        )

    async def _confirm(self, request: web.Request) -> web.Response:
        act = _act_of(request.query.get("act"))
        report = await self._report(request, 0)
        if act not in _acts_of(report):
            text = f"bookie {report.bookie_id} is {report.state}: this cannot be changed so"
            raise web.HTTPBadRequest(text=text)
        cluster, bookie_id = self._context.cluster, report.bookie_id
        ledgers = LedgerPass(cluster, PLAN_S_MAX)
        forecast = naming = None
        if act is Act.DRAIN:
            forecast = await drain_forecast(cluster, (bookie_id,), ledgers)
        elif act is Act.REMOVE:
            naming = (await naming_of(cluster, [bookie_id], ledgers))[bookie_id]
        return self._context.page(
            request,
            "bookie_change.html",
            bookie_id=bookie_id,
            state=report.state,
            act=act,
            text=TEXTS[act],
            forecast=forecast,
            naming=naming,
            ledgers=ledgers,
            reason_characters_max=REASON_CHARACTERS_MAX,
        )

    async def _change(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        act = _act_of(str(form.get("act", "")))
        reason = str(form.get("reason", ""))[:REASON_CHARACTERS_MAX].strip()
        try:
            await self._perform(request.match_info["bookie"], act, reason)
        except NoSuchBookieError as error:
            raise web.HTTPNotFound(text=str(error)) from error
        self._context.survey.ask()
        return see_other(request.rel_url.raw_path.removesuffix("/change"))

    async def _perform(self, wanted: str, act: Act, reason: str) -> None:
        cluster = self._context.cluster
        before = await records_of(cluster, [wanted])
        state = TEXTS[act].state
        if act is Act.REMOVE:
            await remove_all(cluster, before, reason, LedgerPass(cluster))
        elif state is not None:
            require_allowed(cluster, before, state, reason)
            await change_all(cluster, before, state, reason)
        else:
            registration = cluster.directory.bookies.get(BookieId(wanted))
            body = {"read_only": act is Act.READ_ONLY}
            identity = self._context.identity
            await request_change(wanted, registration, identity, "read-only", body)

    async def _report(self, request: web.Request, start: int) -> BookieReport:
        try:
            return await read_report(self._context, request.match_info["bookie"], start)
        except NoSuchBookieError as error:
            raise web.HTTPNotFound(text=str(error)) from error


def _act_of(text: str | None) -> Act:
    try:
        return Act(text or "")
    except ValueError:
        raise web.HTTPBadRequest(text="choose a change on the page of the bookie") from None


def _acts_of(report: BookieReport) -> list[Act]:
    features = () if report.registration is None else report.registration.features
    is_read_only = Reason.OPERATOR in reasons_of(features)
    return allowed_acts(report.record, report.registration, is_read_only=is_read_only)
