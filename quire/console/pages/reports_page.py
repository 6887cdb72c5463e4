"""Pages of bench reports: the list, and one report in place.

Leaves finding them to `quire.console.reports.report_files`, and the content of a report to
`quire.bench.compare.report`, whose own page has the same.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from markupsafe import Markup

from quire.bench.compare.report.page import TITLE, content
from quire.bench.compare.report.style import REPORT_STYLE
from quire.console.context import ConsoleContext, Route
from quire.console.reports.report_files import NoSuchReportError, list_reports, read_report


class ReportPages:
    """Pages of reports."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return (
            Route("GET", "/reports", self._list),
            Route("GET", "/reports/style.css", self._style),
            Route("GET", "/reports/{name}", self._report),
        )

    async def _list(self, request: web.Request) -> web.Response:
        directory = self._context.reports
        found, problem = None, ""
        if directory is not None:
            try:
                found = await asyncio.to_thread(list_reports, directory)
            except NoSuchReportError as error:
                problem = str(error)
        return self._context.page(
            request, "reports.html", found=found, problem=problem, is_set=directory is not None
        )

    async def _report(self, request: web.Request) -> web.Response:
        directory, name = self._context.reports, request.match_info["name"]
        if directory is None:
            raise web.HTTPNotFound(text="this console shows no reports: start it with --reports")
        try:
            body = await asyncio.to_thread(_content, directory, name)
        except NoSuchReportError as error:
            raise web.HTTPNotFound(text=str(error)) from error
        return self._context.page(request, "report.html", name=name, title=TITLE, body=body)

    async def _style(self, _request: web.Request) -> web.Response:
        return web.Response(text=REPORT_STYLE, content_type="text/css")


def _content(directory: Path, name: str) -> Markup:
    comparison = read_report(directory, name)
    try:
        # Safe as HTML: it is made from figures, and each text is escaped in the making.
        return Markup(content(comparison))
    except (ArithmeticError, LookupError, ValueError) as error:
        raise NoSuchReportError(f"{name} has figures that no run has: {error}") from error
