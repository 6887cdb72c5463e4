"""Pages of repair: what is left, by which workers, what blocks it, and every published job."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from aiohttp import web

from ledger_client.errors import LedgerNotFoundError
from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.repair.job_store import JobStore
from metadata.repair.settings_store import RepairSettingsStore
from quire.console.context import Pages, Route, see_other
from quire.console.templating import ROWS_PER_PAGE, Page, asked_number, number_of
from quire.operate.fields import Json
from quire.operate.repair import TABLES, jobs_as_json, jobs_named, read_summary, request_repair
from quire.server.overriding import override

JOBS_START_MAX: Final = 10**6
PAUSE_MINUTES_DEFAULT: Final = 60
PAUSE_MINUTES_MAX: Final = 7 * 24 * 60
MS_PER_MINUTE: Final = 60_000
FIGURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ledgers_left": "Ledgers left",
        "ledgers_blocked": "Of these blocked",
        "bytes_left": "Left to copy",
        "copied_bytes": "Copied",
        "bytes_per_s": "Speed",
        "bytes_per_s_max": "Highest speed",
        "eta_s": "Done in about",
        "lost_ledgers": "Lost ledgers",
        "paused_until_ms": "Paused until",
        "audited_ms": "Last audit",
        "auditor": "Auditor",
        "workers": "Workers",
    }
)
"""Fields of the summary, with what the page calls them."""
HEADINGS: Final[Mapping[str, str]] = MappingProxyType({"id": "Bookie", "for_s": "For"})
"""Headings of columns whose fields have other names."""


class RepairPages(Pages):
    """Pages of repair."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (
            Route("GET", "/repair", self._show),
            Route("GET", "/repair/jobs", self._jobs),
            Route("POST", "/repair/pause", self._pause),
            Route("POST", "/repair/resume", self._resume),
            Route("POST", "/repair/run", self._run),
        )

    async def _show(self, request: web.Request) -> web.Response:
        summary = await read_summary(self._context.cluster)
        row = summary.as_json()
        return self._context.page(
            request,
            "repair.html",
            sentence=summary.sentence,
            is_paused=summary.is_paused,
            pause_minutes=PAUSE_MINUTES_DEFAULT,
            pause_minutes_max=PAUSE_MINUTES_MAX,
            figures=[
                (name, text, row[name])
                for name, text in FIGURES.items()
                if row.get(name) is not None
            ],
            headings=HEADINGS,
            tables=[
                (table.title, table.columns, _rows(row[table.name]))
                for table in TABLES
                if table.name in row
            ],
            job_count=len(summary.published),
        )

    async def _jobs(self, request: web.Request) -> web.Response:
        cluster = self._context.cluster
        start = asked_number(request.query, "from", 0, JOBS_START_MAX)
        published = await JobStore(cluster.store, cluster.rng).published()
        end = start + ROWS_PER_PAGE
        jobs = await jobs_named(cluster, published[start:end])
        rows = await jobs_as_json(cluster, jobs)
        page = Page(rows, start, end if end < len(published) else None)
        return self._context.page(request, "repair_jobs.html", page=page, total=len(published))

    async def _pause(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        minutes = asked_number(form, "minutes", PAUSE_MINUTES_DEFAULT, PAUSE_MINUTES_MAX)
        until_ms = self._context.wall_clock_ms() + minutes * MS_PER_MINUTE
        return await self._change(request, paused_until_ms=until_ms)

    async def _resume(self, request: web.Request) -> web.StreamResponse:
        return await self._change(request, paused_until_ms=0)

    async def _change(self, request: web.Request, **values: int) -> web.StreamResponse:
        cluster = self._context.cluster
        await RepairSettingsStore(cluster.store, cluster.rng).change(**values)
        return see_other(request.rel_url.raw_path.rpartition("/")[0])

    async def _run(self, request: web.Request) -> web.StreamResponse:
        text = str((await request.post()).get("ledger", "")).strip()
        wanted = number_of(text, -1, LEDGER_ID_MAX)
        if wanted < 0:
            raise web.HTTPBadRequest(text="write the id of a ledger, a whole number")
        try:
            await request_repair(self._context.cluster, [LedgerId(wanted)])
        except LedgerNotFoundError as error:
            raise web.HTTPNotFound(text=f"there is no ledger {wanted}") from error
        return see_other(request.rel_url.raw_path.rpartition("/")[0] + "/jobs")


def _rows(value: Json) -> list[Mapping[str, Json]]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, Mapping)]
