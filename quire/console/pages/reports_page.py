"""Pages of bench reports: one directory for each comparison of `quire bench compare`.

Invariants: nothing outside the directory is read: names have no separators, and symbolic links are
refused; a report that is larger than FILES_MAX or BYTES_MAX is refused before it is read.
"""

import asyncio
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from aiohttp import web
from markupsafe import Markup

from quire.bench.comparison import RUNS_PATTERN, Comparison, ResultsError, read_comparison
from quire.bench.report_page import REPORT_STYLE, TITLE, content
from quire.console.context import Pages, Route
from quire.server.overriding import override


class ReportPages(Pages):
    """Pages of reports."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        return (
            Route("GET", "/reports", self._list),
            Route("GET", "/reports/style.css", self._style),
            Route("GET", "/reports/{name}", self._report),
        )

    async def _list(self, request: web.Request) -> web.Response:
        directory = self._context.reports
        listed, problem = None, ""
        if directory is not None:
            try:
                listed = await asyncio.to_thread(list_reports, directory)
            except NoSuchReportError as error:
                problem = str(error)
        return self._context.page(
            request, "reports.html", listed=listed, problem=problem, is_set=directory is not None
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


NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
REPORTS_MAX: Final = 200
"""Maximum number of reports that are listed."""
LOOKED_AT_MAX: Final = 2_000
"""Maximum number of names in the directory that are looked at."""
FILES_MAX: Final = 2_000
"""Maximum number of files of one report."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of all files of one report."""


class NoSuchReportError(Exception):
    """A report does not exist, or cannot be shown; the text gives the reason and the next step."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """What the list shows of one report."""

    name: str
    runs: int
    changed_ms: int
    """Time of the last change of the directory, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ReportList:
    """The reports of a directory, the newest first."""

    reports: tuple[ReportFile, ...]
    holds_runs: bool
    """Whether the directory itself is a comparison, so that its parent is probably meant."""
    is_cut: bool
    """Whether there are more."""


def list_reports(directory: Path) -> ReportList:
    """List the reports of a directory. Raises NoSuchReportError if it cannot be read."""
    try:
        names = list(islice(directory.iterdir(), LOOKED_AT_MAX + 1))
        files = [file for path in sorted(names)[:LOOKED_AT_MAX] for file in _listed(path)]
        holds_runs = any(directory.glob(RUNS_PATTERN))
    except OSError as error:
        raise NoSuchReportError(
            f"the directory of reports cannot be read: {error.strerror}; the option `reports` of "
            "`quire console` names it"
        ) from error
    files.sort(key=lambda file: (-file.changed_ms, file.name))
    is_cut = len(names) > LOOKED_AT_MAX or len(files) > REPORTS_MAX
    return ReportList(tuple(files[:REPORTS_MAX]), holds_runs, is_cut)


def read_report(directory: Path, name: str) -> Comparison:
    """Read one report. Raises NoSuchReportError."""
    if not NAME.fullmatch(name):
        raise NoSuchReportError("there is no report of this name: the list of reports has them")
    path = directory / name
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise NoSuchReportError(f"{name} is not a directory with runs, or is a symbolic link")
        _check_files(path, name)
        comparison = read_comparison(path)
    except OSError as error:
        raise NoSuchReportError(f"{name} cannot be read: {error.strerror}") from error
    except ResultsError as error:
        raise NoSuchReportError(str(error).replace(f"{directory}/", "")) from error
    if not comparison.runs:
        raise NoSuchReportError(f"{name} has no runs of `quire bench compare`")
    return comparison


def _listed(path: Path) -> Iterator[ReportFile]:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and NAME.fullmatch(path.name):
        runs = sum(1 for _ in islice(path.glob(RUNS_PATTERN), FILES_MAX))
        if runs:
            yield ReportFile(path.name, runs, status.st_mtime_ns // 1_000_000)


def _check_files(path: Path, name: str) -> None:
    size = 0
    for number, file in enumerate(path.glob("*.json")):
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise NoSuchReportError(f"{name}/{file.name} is not a plain file: move it away")
        size += status.st_size
        if number >= FILES_MAX or size > BYTES_MAX:
            raise NoSuchReportError(
                f"{name} is larger than {FILES_MAX:,} files or {BYTES_MAX // 2**20} MiB: use "
                "`quire bench report`, whose page needs no console"
            )
