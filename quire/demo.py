"""Guided demo of the main job: append a file while bookies fail, read it back, compare, take over
from a writer that is alive and appends.

Leaves processes to `quire.local_cluster`. `DemoSource` has the lines: a file, or the source text of
Python's standard library. `LiveView` keeps a panel on a terminal, `PlainView` prints lines.

Invariants: every claim in the report was checked in this run; a claim that is not true makes the
run fail.

Source: protocol rules 4.7, 7.1-7.5.
"""

import asyncio
import contextlib
import hashlib
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from ledger_client import LedgerClient, LedgerError, LedgerInfo, LedgerWriter, Quorum
from metadata.cancelling import cancel_and_wait
from metadata.registry.directory import JITTER_S
from quire.errors import UsageError
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from quire.operate.appends import PipelinedAppend
from quire.operate.fields import describe_bytes

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

BOOKIES: Final = 4
QUORUM: Final = Quorum(ensemble=3, write=3, ack=2)
KILL_AT: Final = 1 / 3
PAUSE_AT: Final = 2 / 3
STATUS_INTERVAL_S: Final = 0.25
POLL_INTERVAL_S: Final = 0.02
LINES_PER_GROUP: Final = 1024
SLOW_PAUSE_S: Final = 0.02
CHANGE_WAIT_S: Final = 15.0
RESTART_WAIT_S: Final = 30.0


LINE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a line; longer lines become several entries."""


class DemoSource:
    """Some files, read one after the other as lines, with the count and hash of the bytes read so
    far.
    """

    def __init__(self, name: str, paths: list[Path]) -> None:
        self.name = name
        self._paths = paths
        self._hash = hashlib.sha256()
        self.total_bytes = sum(path.stat().st_size for path in paths)
        self.read_bytes = 0
        self.line_count = 0

    def lines(self) -> Iterator[bytes]:
        """Yield every line with its newline; together the lines are the files' bytes."""
        for path in self._paths:
            with path.open("rb") as file:
                while line := file.readline(LINE_BYTES_MAX):
                    self._hash.update(line)
                    self.read_bytes += len(line)
                    self.line_count += 1
                    yield line

    @property
    def share_read(self) -> float:
        """Share of the bytes read so far, from 0 to 1."""
        return self.read_bytes / self.total_bytes if self.total_bytes else 1.0

    def digest(self) -> str:
        """Return the SHA-256 of the bytes read so far."""
        return self._hash.hexdigest()


def open_source(file: str | None) -> DemoSource:
    """Return the given file, or the complete standard library of this Python. Raises UsageError."""
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise UsageError(
                f"{file} is not a file that can be read", try_next="quire demo (without --file)"
            )
        return DemoSource(path.name, [path])
    library = Path(sysconfig.get_path("stdlib"))
    outside = ("site-packages", "dist-packages")
    paths = sorted(
        path
        for path in library.rglob("*.py")
        if path.is_file() and not any(name in path.parts for name in outside)
    )
    if not paths:
        raise UsageError(
            f"there is no source text of the standard library in {library}",
            try_next="quire demo --file FILE",
        )
    return DemoSource(f"the standard library of Python, {len(paths)} files", paths)


FRAGMENTS_SHOWN_MAX: Final = 8
PLAIN_EVERY_TH_STATUS: Final = 4
BAR_CELLS: Final = 40


@dataclass(frozen=True, slots=True)
class FragmentLine:
    """Shown fields of a fragment; `last_entry_id` is None while the fragment grows."""

    first_entry_id: int
    last_entry_id: int | None
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoStatus:
    """Shown state of a running append."""

    share_done: float
    entries_per_s: float
    lac: int
    fragments: Sequence[FragmentLine]
    bookies: Sequence[tuple[str, str]]
    """Pairs (id, state)."""


def view_for(stream: TextIO) -> "DemoView":
    """Return the view for a terminal, or for another stream."""
    if stream.isatty():
        with contextlib.suppress(ModuleNotFoundError):
            return LiveView(stream)
    return PlainView(stream)


class PlainView:
    """View that prints everything as lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._statuses_seen = 0

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=self._stream, flush=True)

    def show(self, status: DemoStatus) -> None:
        """Print a line at intervals."""
        self._statuses_seen += 1
        if self._statuses_seen % PLAIN_EVERY_TH_STATUS == 0:
            self.say("    " + describe_status(status))

    def rest(self) -> None:
        """Do nothing."""


class LiveView:
    """View that keeps a panel below the printed steps; needs rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """Print one line above the panel."""
        self._console.print(text, markup=False)

    def show(self, status: DemoStatus) -> None:
        """Draw the panel again."""
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(_panel(status), refresh=True)

    def rest(self) -> None:
        """Remove the panel."""
        if self._live is not None:
            self._live.stop()
            self._live = None


DemoView = PlainView | LiveView


def describe_status(status: DemoStatus) -> str:
    """Return a status as one line."""
    current = ", ".join(status.fragments[-1].ensemble) if status.fragments else "-"
    return (
        f"{status.share_done:4.0%}  {status.entries_per_s:>9,.0f} entries/s  LAC {status.lac:,}  "
        f"ensemble {current}  fragments {len(status.fragments)}"
    )


def describe_fragment(fragment: FragmentLine) -> str:
    """Return a fragment as one line."""
    first, last = fragment.first_entry_id, fragment.last_entry_id
    end = "..." if last is None else "(none)" if last < first else f"{last:,}"
    return f"entries {first:>9,} - {end:<9}  on {', '.join(fragment.ensemble)}"


def _panel(status: DemoStatus) -> "Table":
    from rich.table import Table
    from rich.text import Text

    done = round(status.share_done * BAR_CELLS)
    bar = Text("#" * done, style="green") + Text("." * (BAR_CELLS - done), style="dim")
    colours = {"up": "green", "killed": "red", "paused": "yellow", "restarting": "cyan"}
    bookies = Text("  ").join(
        Text(f"{bookie_id} ({state})", style=colours.get(state, ""))
        for bookie_id, state in status.bookies
    )
    table = Table.grid(padding=(0, 2))
    table.add_row("progress", bar + Text(f" {status.share_done:.0%}"))
    table.add_row("rate", f"{status.entries_per_s:,.0f} entries/s")
    table.add_row("LAC", f"{status.lac:,}")
    table.add_row("bookies", bookies)
    for fragment in status.fragments[-FRAGMENTS_SHOWN_MAX:]:
        table.add_row("fragment", describe_fragment(fragment))
    return table


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """One claim, whether it is true, and the observation."""

    claim: str
    holds: bool
    seen: str


@dataclass(slots=True)
class DemoReport:
    """Results of a run of the demo."""

    checks: list[CheckedClaim] = field(default_factory=list)
    line_count: int = 0
    byte_count: int = 0
    failure_count: int = 0
    """Number of bookies that were killed or paused while appending."""
    append_s: float = 0.0
    read_s: float = 0.0
    fragments: list[FragmentLine] = field(default_factory=list)

    def check(self, claim: str, seen: str, *, holds: bool) -> None:
        """Record one claim and whether it is true."""
        self.checks.append(CheckedClaim(claim, holds, seen))

    @property
    def is_well(self) -> bool:
        """Whether every claim is true."""
        return bool(self.checks) and all(check.holds for check in self.checks)


class Demo:
    """One run, on a cluster that is up."""

    def __init__(self, cluster: LocalCluster, source: DemoSource, view: DemoView) -> None:
        self._cluster = cluster
        self._source = source
        self._view = view
        self._states = {bookie.id: "up" for bookie in cluster.bookies}
        self._restart: asyncio.Task[None] | None = None
        self._killed: LocalBookie | None = None
        self._paused: LocalBookie | None = None
        self._groups_after_pause = 0
        self._confirmed_count = 0
        self.report = DemoReport()

    async def run(self) -> DemoReport:
        """Run the complete demo; return its results."""
        info = await self._append()
        self._show_fragments(info)
        await self._read_back(info)
        await self._resume()
        await take_over(self._cluster.metadata_uri, self._view, self.report.check)
        return self.report

    # -- appending while bookies fail ----------------------------------------------------------

    async def _append(self) -> LedgerInfo:
        source, report = self._source, self.report
        size = describe_bytes(source.total_bytes)
        self._view.say(f"Appending {source.name} ({size}), one entry per line, on 3 of 4 bookies;")
        self._view.say("an append is confirmed once 2 of the 3 copies are synced to disk.")
        loop = asyncio.get_running_loop()
        async with LedgerClient(self._cluster.metadata_uri) as client:
            async with client.create_ledger(QUORUM, metadata={"app": "quire demo"}) as ledger:
                started = loop.time()
                status = asyncio.create_task(self._show_status(ledger))
                try:
                    await self._append_lines(ledger)
                finally:
                    await cancel_and_wait(status)
                    self._view.rest()
                report.append_s = loop.time() - started
            info = await client.ledger_info(ledger.id)
        report.line_count, report.byte_count = source.line_count, source.read_bytes
        report.failure_count = sum(bookie is not None for bookie in (self._killed, self._paused))
        rate = report.line_count / max(report.append_s, 1e-9)
        self._view.say(
            f"Appended {report.line_count:,} lines in {report.append_s:.1f} s ({rate:,.0f}/s, the "
            "wait for the restart included)."
        )
        report.check(
            "every line was confirmed, and the ledger closed at the last one",
            f"{self._confirmed_count:,} confirmed, closed at {last_of(info):,}",
            holds=self._confirmed_count == source.line_count == last_of(info) + 1,
        )
        return info

    async def _append_lines(self, ledger: LedgerWriter) -> None:
        """Append every line; inject the faults when they are due."""
        async with PipelinedAppend(ledger, self._count_confirmed) as pipeline:
            for group in self._groups():
                await pipeline.add(group)
                if self._killed is None and self._source.share_read >= KILL_AT:
                    await _until(lambda: ledger.last_confirmed >= 0)  # a small file is all pending
                    self._kill_one(ledger)
                elif self._paused is None and self._source.share_read >= PAUSE_AT:
                    await self._pause_one(ledger)
                if self._paused is not None:
                    self._groups_after_pause += 1
                    if self._paused.id in members(ledger):
                        await asyncio.sleep(SLOW_PAUSE_S)  # leaves lines to append without it
            if self._restart is not None:
                await self._restart
            if self._paused is not None and self._groups_after_pause > 1:
                await self._until_replaced(self._paused, ledger)

    def _groups(self) -> Iterator[list[bytes]]:
        """Split the source into groups of lines that end at the shares where faults are due."""
        source = self._source
        ends = [round(source.total_bytes * share) for share in (KILL_AT, PAUSE_AT, 1)]
        group: list[bytes] = []
        for line in source.lines():
            group.append(line)
            if len(group) >= LINES_PER_GROUP or source.read_bytes >= ends[0]:
                yield group
                group = []
                while len(ends) > 1 and source.read_bytes >= ends[0]:
                    del ends[0]
        if group:
            yield group

    def _count_confirmed(self, count: int) -> None:
        self._confirmed_count += count

    def _kill_one(self, ledger: LedgerWriter) -> None:
        bookie = self._member(ledger, 0)
        bookie.kill()
        self._killed = bookie
        self._states[bookie.id] = "killed"
        self._view.say(f"At a third: kill -9 of {bookie.id} (process {bookie.pid}).")
        self._restart = asyncio.create_task(self._bring_back(bookie, ledger))

    async def _bring_back(self, bookie: LocalBookie, ledger: LedgerWriter) -> None:
        """Start the killed bookie again once it was replaced, as the spare for the next fault."""
        await self._until_replaced(bookie, ledger)
        self._view.say(f"    the writer continues with {', '.join(members(ledger))}")
        self._states[bookie.id] = "restarting"
        await bookie.restart()
        # Clients read new registrations within this time, so that not all of them do it at once.
        await asyncio.sleep(JITTER_S)
        self._states[bookie.id] = "up"
        self._view.say(f"Restarted {bookie.id} from its own disk: it is a spare again.")

    async def _pause_one(self, ledger: LedgerWriter) -> None:
        assert self._restart is not None, "the kill comes first"
        await asyncio.wait_for(self._restart, RESTART_WAIT_S)
        bookie = self._member(ledger, 0)
        bookie.pause()
        self._paused = bookie
        self._states[bookie.id] = "paused"
        self._view.say(
            f"At two thirds: SIGSTOP of {bookie.id}: it stays connected but does not respond."
        )

    async def _until_replaced(self, bookie: LocalBookie, ledger: LedgerWriter) -> None:
        """Wait until the ledger is written without a bookie; otherwise a check fails later."""
        if not await _until(lambda: bookie.id not in members(ledger)):
            self._view.say(f"    {bookie.id} was not replaced within {CHANGE_WAIT_S:.0f} s")

    async def _resume(self) -> None:
        if self._paused is not None:
            self._paused.resume()
            self._states[self._paused.id] = "up"
            self._view.say(f"Resumed {self._paused.id}.")

    def _member(self, ledger: LedgerWriter, position: int) -> LocalBookie:
        wanted = members(ledger)[position]
        return next(bookie for bookie in self._cluster.bookies if bookie.id == wanted)

    async def _show_status(self, ledger: LedgerWriter) -> None:
        loop = asyncio.get_running_loop()
        seen_at, seen = loop.time(), ledger.last_confirmed
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            now, lac = loop.time(), ledger.last_confirmed
            fragments = fragment_lines(ledger.info)
            rate = (lac - seen) / (now - seen_at)
            states = list(self._states.items())
            self._view.show(DemoStatus(self._source.share_read, rate, lac, fragments, states))
            seen_at, seen = now, lac

    # -- checking the result afterwards ----------------------------------------------------------

    def _show_fragments(self, info: LedgerInfo) -> None:
        report = self.report
        report.fragments = fragment_lines(info)
        self._view.say(f"Ledger {info.ledger_id} is closed; its fragments:")
        for fragment in report.fragments:
            self._view.say("    " + describe_fragment(fragment))
        if self._killed is not None:
            self._check_replaced("killed", self._killed, report.fragments)
        if self._paused is not None and self._groups_after_pause > 1:
            self._check_replaced("paused", self._paused, report.fragments[-1:])

    def _check_replaced(
        self, what: str, bookie: LocalBookie, fragments: Sequence[FragmentLine]
    ) -> None:
        """Check that at least one of these fragments is without the bookie."""
        without = [fragment for fragment in fragments if bookie.id not in fragment.ensemble]
        seen = f"{bookie.id} is in the last fragment"
        if without:
            seen = f"{bookie.id} is not in the fragment from entry {without[0].first_entry_id:,} on"
        self.report.check(
            f"the {what} bookie was replaced while appending", seen, holds=bool(without)
        )

    async def _read_back(self, info: LedgerInfo) -> None:
        self._view.say("Reading everything back through a fresh client.")
        digest, count = hashlib.sha256(), 0
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with (
            LedgerClient(self._cluster.metadata_uri) as client,
            client.open_ledger(info.ledger_id) as reader,
        ):
            if last_of(info) >= 0:
                async for batch in reader.read(0, last_of(info)):
                    payload, _ = batch.buffers()
                    digest.update(payload)
                    count += len(batch)
        self.report.read_s = loop.time() - started
        expected = self._source.digest()
        self._view.say(f"    SHA-256 of what was appended  {expected}")
        self._view.say(f"    SHA-256 of what was read      {digest.hexdigest()}")
        self.report.check(
            "a fresh client read the same bytes",
            f"{count:,} entries in {self.report.read_s:.1f} s",
            holds=digest.hexdigest() == expected and count == self._source.line_count,
        )


def fragment_lines(info: LedgerInfo) -> list[FragmentLine]:
    """Return a ledger's fragments with their ends."""
    starts = [fragment.first_entry_id for fragment in info.fragments]
    ends = [*(start - 1 for start in starts[1:]), info.last_entry_id]
    return [
        FragmentLine(fragment.first_entry_id, end, tuple(map(str, fragment.ensemble)))
        for fragment, end in zip(info.fragments, ends, strict=True)
    ]


def last_of(info: LedgerInfo) -> int:
    """Return a closed ledger's last entry id."""
    assert info.last_entry_id is not None, "the ledger was closed"
    return info.last_entry_id


def members(ledger: LedgerWriter) -> tuple[str, ...]:
    """Return the bookies that a ledger is being written to."""
    return tuple(map(str, ledger.info.fragments[-1].ensemble))


async def _until(holds: Callable[[], bool]) -> bool:
    """Wait until a condition is true, at most CHANGE_WAIT_S; return whether it is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CHANGE_WAIT_S
    while not holds() and loop.time() < deadline:  # noqa: ASYNC110  no event exists
        await asyncio.sleep(POLL_INTERVAL_S)
    return holds()


LIVE_ENTRIES: Final = 200
"""Number of entries that the first writer has confirmed before the takeover."""
REFUSAL_WAIT_S: Final = 20.0


class Checks(Protocol):
    """Recorder of claims and whether they are true."""

    def __call__(self, claim: str, seen: str, *, holds: bool) -> None:
        """Record one claim."""


@dataclass(slots=True)
class _FirstWriter:
    """Results that the first writer received."""

    confirmed: dict[int, bytes] = field(default_factory=dict)
    refusal: LedgerError | None = None
    is_under_way: asyncio.Event = field(default_factory=asyncio.Event)


async def take_over(metadata_uri: str, view: DemoView, check: Checks) -> None:
    """Append with one client, recover its ledger with another; check the results of both."""
    first = _FirstWriter()
    async with LedgerClient(metadata_uri) as owner, LedgerClient(metadata_uri) as successor:
        ledger = await owner.create_ledger(QUORUM)
        view.say(f"A first client appends to ledger {ledger.id}, without end.")
        appending = asyncio.create_task(_append_until_refused(ledger, first))
        try:
            await first.is_under_way.wait()
            view.say("A second client takes the ledger over: it fences, recovers and closes it.")
            info = await successor.recover_ledger(ledger.id)
            await asyncio.wait_for(appending, REFUSAL_WAIT_S)
        finally:
            await cancel_and_wait(appending)
            await _close_quietly(ledger)
        last = -1 if info.last_entry_id is None else info.last_entry_id
        view.say(f"    closed at entry {last:,} by the second client")
        view.say(f"    the first client received: {first.refusal}")
        check(
            "the first writer was refused after the takeover",
            type(first.refusal).__name__,
            holds=type(first.refusal).__name__ == "LedgerFencedError",
        )
        lost = [i for i in first.confirmed if i > last]
        differing = await _differing(successor, ledger.id, last, first.confirmed)
        check(
            "every entry that the first writer had confirmed is in the closed ledger",
            f"{len(first.confirmed):,} confirmed, {len(lost)} lost, {differing} changed",
            holds=info.is_closed and not lost and not differing,
        )


async def _append_until_refused(ledger: LedgerWriter, first: _FirstWriter) -> None:
    number = 0
    while True:
        data = f"order {number}".encode()
        try:
            first.confirmed[await ledger.append(data)] = data
        except LedgerError as error:
            first.refusal = error
            first.is_under_way.set()
            return
        number += 1
        if number == LIVE_ENTRIES:
            first.is_under_way.set()


async def _differing(
    client: LedgerClient, ledger_id: int, last: int, confirmed: dict[int, bytes]
) -> int:
    if last < 0:
        return 0
    count = 0
    async with client.open_ledger(ledger_id) as reader:
        async for batch in reader.read(0, last):
            count += sum(confirmed.get(e.id, e.data) != e.data for e in batch)
    return count


async def _close_quietly(ledger: LedgerWriter) -> None:
    try:
        await ledger.abort()
    except LedgerError:
        return  # refused: the refusal is already recorded
