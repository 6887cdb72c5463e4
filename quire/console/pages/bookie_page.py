"""Page of one bookie: what it and the metadata report, and its changes, each with its plan before.

Source: protocol rule 9.1; docs/repair.md.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from aiohttp import web

from bookie.storage.writability import ADVICE, DESCRIPTIONS, Reason, reasons_of
from metadata.ids import LEDGER_ID_MAX, BookieId
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle, may_be_removed, may_become
from metadata.repair.scrub import ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from quire.console.context import ConsoleContext, Pages, Route, see_other
from quire.console.templating import ROWS_PER_PAGE, Page, asked_number
from quire.operate.admin_api import AdminApiError
from quire.operate.as_json import state_of
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
from quire.operate.fields import Json
from quire.operate.ledger_pass import LedgerPass
from quire.operate.watch import ScrapeError, parse_scrape
from quire.server.overriding import override

PLAN_S_MAX: Final = 5.0
"""Time for the pass of a plan; a plan of a larger cluster covers the ledgers read until then."""
REMOVAL_S_MAX: Final = 600.0
REASON_CHARACTERS_MAX: Final = 200
DAMAGED_SHOWN_MAX: Final = 100
SYNC: Final = "quire_bookie_storage_sync_latency_seconds"
STORAGE_SHOWN: Final = (
    ("disk_free_bytes", "Free on its disk"),
    ("disk_total_bytes", "Size of its disk"),
    ("segment_bytes", "Segment files"),
    ("live_bytes", "Of these named by the index"),
    ("cleaning_backlog_bytes", "Garbage that is due to be cleaned"),
    ("index_bytes", "Index"),
    ("queue_bytes", "Accepted and not yet durable"),
    ("ledgers", "Ledgers stored or fenced"),
    ("damaged_entries", "Damaged entries that are not repaired"),
)
"""Fields of a bookie's statistics, with what the page calls them."""
ADMIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Durations of syncs since the bookie started."""

    count: int
    mean_s: float
    p50_s: float
    """Bound of the bucket with the median: it was not longer."""
    p99_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the page."""

    name: str
    field: str
    """Field whose name says the unit."""
    value: int


@dataclass(frozen=True, slots=True)
class BookieAnswers:
    """What the bookie's admin server answered."""

    figures: Sequence[Figure] = ()
    conditions: Sequence[Mapping[str, Json]] = ()
    syncs: SyncTimes | None = None
    ledgers: Page[int] = field(default_factory=lambda: Page([], 0, None))
    failure: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class BookieReport:
    """Everything that a bookie's page shows.

    A bookie that does not answer within ADMIN_S delays the page by at most that time; a figure that
    the bookie does not report, or not as expected, is absent.
    """

    bookie_id: BookieId
    registration: BookieRegistration | None
    """None while it is not up."""
    record: BookieLifecycle
    scrub: ScrubRecord
    settings: RepairSettings
    answers: BookieAnswers

    @property
    def state(self) -> str:
        """Its state in a word."""
        return state_of(self.registration, self.record.state)


class Act(StrEnum):
    """A change of one bookie."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"
    READ_ONLY = "read-only"
    WRITABLE = "writable"


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
                (DESCRIPTIONS[reason], ADVICE[reason].replace("ID", report.bookie_id))
                for reason in reasons
            ],
            damaged=report.scrub.bad[:DAMAGED_SHOWN_MAX],
            lost_after_s=report.settings.lost_after_s,
            acts=[(act, TEXTS[act]) for act in _acts_of(report)],
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


def storage_figures(state: Json) -> list[Figure]:
    """Return the figures of a bookie's statistics."""
    storage = state.get("storage") if isinstance(state, Mapping) else None
    if not isinstance(storage, Mapping):
        return []
    figures = [(name, text, storage.get(name)) for name, text in STORAGE_SHOWN]
    return [Figure(text, name, value) for name, text, value in figures if isinstance(value, int)]


def conditions_of(state: Json) -> list[Mapping[str, Json]]:
    """Return the conditions that a bookie reports, each with advice."""
    rows = state.get("conditions") if isinstance(state, Mapping) else None
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def sync_times(metrics: str) -> SyncTimes | None:
    """Return the durations of syncs in a bookie's metrics; None if there was no sync."""
    try:
        scrape = parse_scrape(metrics, 0.0)
    except ScrapeError:
        return None
    buckets = sorted(scrape.buckets.get(SYNC, {}).items())
    if not buckets or not buckets[-1][1] > 0:
        return None
    count, sum_s = buckets[-1][1], scrape.totals.get(f"{SYNC}_sum", 0.0)
    return SyncTimes(int(count), sum_s / count, _bound(buckets, 0.5), _bound(buckets, 0.99))


def _bound(buckets: list[tuple[float, float]], share: float) -> float:
    """Return the bound of the first bucket up to which this share of all was counted."""
    wanted = share * buckets[-1][1]
    return next((bound for bound, count in buckets if count >= wanted), math.inf)


async def read_report(context: ConsoleContext, wanted: str, first_ledger: int) -> BookieReport:
    """Read the report of a bookie, with its ledgers from an id on. Raises NoSuchBookieError."""
    cluster = context.cluster
    ((bookie_id, record),) = (await records_of(cluster, [wanted])).items()
    registration = cluster.directory.bookies.get(bookie_id)
    return BookieReport(
        bookie_id,
        registration,
        record,
        await ScrubStore(cluster.store, cluster.rng).get(bookie_id),
        await RepairSettingsStore(cluster.store, cluster.rng).get(),
        await _answers(context, registration, first_ledger),
    )


async def _answers(
    context: ConsoleContext, registration: BookieRegistration | None, first_ledger: int
) -> BookieAnswers:
    if registration is None or not registration.admin_url:
        return BookieAnswers()
    url, servers = registration.admin_url, context.admin_servers
    listed = f"{url}/api/v1/ledgers?after={first_ledger - 1}&limit={ROWS_PER_PAGE}"
    try:
        state, ledgers, metrics = await asyncio.gather(
            servers.get_json(f"{url}/api/v1/state", ADMIN_S),
            servers.get_json(listed, ADMIN_S),
            servers.get_text(f"{url}/metrics", ADMIN_S),
        )
    except AdminApiError as error:
        return BookieAnswers(failure=str(error))
    return BookieAnswers(
        storage_figures(state),
        conditions_of(state),
        sync_times(metrics),
        _page_of(ledgers, first_ledger),
    )


def _page_of(answer: Json, first_ledger: int) -> Page[int]:
    rows = answer.get("ledgers") if isinstance(answer, Mapping) else None
    after = answer.get("next_after") if isinstance(answer, Mapping) else None
    next_start = after + 1 if isinstance(after, int) else None
    ids = (_id_of(row) for row in rows) if isinstance(rows, list) else ()
    return Page([id_ for id_ in ids if id_ is not None], first_ledger, next_start)


def _id_of(row: Json) -> int | None:
    number = row.get("ledger_id") if isinstance(row, Mapping) else row
    return number if isinstance(number, int) else None


@dataclass(frozen=True, slots=True)
class ActText:
    """What a page says of an act."""

    title: str
    consequence: str
    state: Lifecycle | None = None
    """State that the bookie gets; None if the bookie itself is asked."""


TEXTS = {
    Act.DRAIN: ActText(
        "Drain",
        "It takes no new entries, and repair moves its copies to other bookies. Undrain ends it.",
        Lifecycle.DRAINING,
    ),
    Act.UNDRAIN: ActText(
        "Use again", "It takes new entries again, and no more copies are moved.", Lifecycle.ACTIVE
    ),
    Act.REMOVE: ActText(
        "Remove for ever",
        "Its id is never used again. It is removed only if no ledger names it.",
        Lifecycle.REMOVED,
    ),
    Act.READ_ONLY: ActText(
        "Make read-only", "It takes no new entries, also after a restart; nothing is moved."
    ),
    Act.WRITABLE: ActText("Make writable", "It takes new entries if nothing else prevents that."),
}


def allowed_acts(
    record: BookieLifecycle, registration: BookieRegistration | None, *, is_read_only: bool
) -> list[Act]:
    """Return the changes that make sense for a bookie now."""
    state, acts = record.state, list[Act]()
    if state is not Lifecycle.DRAINING and may_become(state, Lifecycle.DRAINING):
        acts.append(Act.DRAIN)
    if state in (Lifecycle.DRAINING, Lifecycle.DRAINED) and not (
        registration is not None and registration.is_in_limbo
    ):
        acts.append(Act.UNDRAIN)
    if state is not Lifecycle.REMOVED and may_be_removed(state):
        acts.append(Act.REMOVE)
    if registration is not None and registration.admin_url:
        acts.append(Act.WRITABLE if is_read_only else Act.READ_ONLY)
    return acts
