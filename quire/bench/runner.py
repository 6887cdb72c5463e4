"""Runs configurations through scenarios, one cell after the other, each on a separate cluster, with
a process that writes.

Invariants: two runs share nothing; each repetition rotates the order of configurations by one, so
that a slow phase of the machine affects all of them equally; a failed run is a result too. The
writing process never outlives this one: it ends when its standard input ends. The counters of a
bookie that is killed are those of its last reading, which is taken right before each kill.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

from ledger_client import LedgerError
from metadata.errors import MetadataError
from quire.bench import configurations, measuring, scenarios
from quire.bench.configurations import Configuration
from quire.bench.durability import LedgerSafety, examine
from quire.bench.injection import DelayingProxy, InjectionMark, Injector
from quire.bench.journal import Journal, read_journal
from quire.bench.load import LoadSpec
from quire.bench.results import Cell, FailedRun, PerSecond, RunResult, Takeover
from quire.bench.scenarios import Scenario
from quire.errors import LocalClusterError
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from quire.operate.admin_api import AdminApiError, get_json

BEGIN_AFTER_S: Final = 0.3
END_MARGIN_S: Final = 30.0
AROUND_S: Final = 4.0
"""About how long one run takes beside its load: start, examination and stop of the cluster."""
SLICE_COUNT: Final = 40


@dataclass(frozen=True, slots=True)
class Plan:
    """Selection of scenarios, configurations, rates and repetitions."""

    configurations: tuple[str, ...]
    scenarios: tuple[str, ...]
    rates: tuple[float, ...]
    entry_bytes: int
    repeat: int
    scale: float
    """Factor for the scenarios' times."""
    first_repetition: int = 0
    """Number of the first new repetition; earlier ones are in the directory."""

    def expected_s(self) -> float:
        """Return about how long all runs take, in seconds."""
        seconds = [
            scenarios.BY_NAME[cell.scenario].seconds * self.scale + AROUND_S
            for cell in self.cells()
        ]
        return sum(seconds)

    def cells(self) -> Iterator[Cell]:
        """Yield the cell of every run, in order."""
        for repetition in range(self.first_repetition, self.first_repetition + self.repeat):
            turn = repetition % len(self.configurations)
            turned = (*self.configurations[turn:], *self.configurations[:turn])
            for scenario in self.scenarios:
                for rate in self.rates:
                    for name in turned:
                        yield Cell(name, scenario, rate, repetition)


@dataclass(slots=True)
class _Run:
    """State of one run."""

    cell: Cell
    configuration: Configuration
    scenario: Scenario
    directory: Path
    spec: LoadSpec
    start: float = 0.0
    written_bytes: int = 0


async def run_all(
    plan: Plan, on_result: Callable[[RunResult | FailedRun], None]
) -> list[RunResult | FailedRun]:
    """Run every cell; call `on_result` as each ends."""
    results: list[RunResult | FailedRun] = []
    for cell in plan.cells():
        result = await run_cell(cell, plan)
        results.append(result)
        on_result(result)
    return results


async def run_cell(cell: Cell, plan: Plan) -> RunResult | FailedRun:
    """Run one cell."""
    configuration = configurations.BY_NAME[cell.configuration]
    scenario = scenarios.BY_NAME[cell.scenario].scaled(plan.scale)
    directory = Path(tempfile.mkdtemp(prefix="quire-compare-"))
    spec = LoadSpec(
        metadata_uri="",
        configuration=cell.configuration,
        rate=cell.rate,
        seconds=scenario.seconds,
        entry_bytes=plan.entry_bytes,
        journal=str(directory / "first"),
        bursts=tuple((burst.at_s, burst.count) for burst in scenario.bursts),
        zones_at_s=scenario.zones_at_s,
    )
    try:
        return await _run(_Run(cell, configuration, scenario, directory, spec))
    except (LoadError, LocalClusterError, LedgerError, MetadataError) as error:
        return FailedRun(cell, f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(run: _Run) -> RunResult:
    bookie_count = run.configuration.quorum.ensemble + run.scenario.spares
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(bookies=bookie_count))
        proxies: dict[str, DelayingProxy] = {}
        if run.scenario.delays_network:
            for bookie in cluster.bookies:
                proxies[bookie.address] = await DelayingProxy(bookie.address).start()
                stack.push_async_callback(proxies[bookie.address].aclose)
        redirects = tuple((address, proxy.address) for address, proxy in proxies.items())
        run.spec = replace(run.spec, metadata_uri=cluster.metadata_uri, redirects=redirects)
        marks = await _load(run, cluster, proxies, stack)
        journal = _whole_journal(run)
        safety = await examine(cluster.metadata_uri, measuring.last_acknowledged(journal.acks))
    return _result(run, journal, marks, safety)


async def _load(
    run: _Run, cluster: LocalCluster, proxies: dict[str, DelayingProxy], stack: AsyncExitStack
) -> tuple[InjectionMark, ...]:
    """Write while the scenario's faults strike; return the faults once the writer has ended."""
    writer = LoadProcess(run.spec)
    stack.push_async_callback(writer.aclose)
    ensemble = await writer.start()
    writers = [writer]
    if run.scenario.kills_writer:
        later = replace(
            run.spec, journal=str(run.directory / "second"), earlier_journal=run.spec.journal
        )
        writers.append(LoadProcess(later))
        stack.push_async_callback(writers[-1].aclose)
        await writers[-1].start()

    def kill_writer() -> None:
        writer.kill()
        opened = read_journal(Path(run.spec.journal)).of_kind("ledger_opened")
        writers[-1].take_over(run.start, opened[-1]["ledger_id"])

    members = [next(b for b in cluster.bookies if b.id == name) for name in ensemble]
    others = [bookie for bookie in cluster.bookies if bookie not in members]
    injector = Injector(cluster, [*members, *others], proxies, kill_writer)
    meters = BookieMeters(cluster.bookies)
    await meters.read()
    run.start = monotonic() + BEGIN_AFTER_S
    writer.begin(run.start)
    try:
        await injector.run(run.scenario.steps, run.start, meters.read)
        await writers[-1].require_success(run.scenario.seconds + END_MARGIN_S)
    finally:
        await injector.heal()
    await meters.read()
    run.written_bytes = meters.written_bytes
    return tuple(InjectionMark(mark.at - run.start, mark.label) for mark in injector.marks)


def _whole_journal(run: _Run) -> Journal:
    """Join the journals of the writer and its successor."""
    first = read_journal(Path(run.spec.journal))
    second = read_journal(run.directory / "second")
    notes = sorted((*first.notes, *second.notes), key=lambda note: float(note["at"]))
    return Journal((*first.acks, *second.acks), tuple(notes))


def _result(
    run: _Run, journal: Journal, marks: tuple[InjectionMark, ...], safety: list[LedgerSafety]
) -> RunResult:
    seconds = run.scenario.seconds
    counters = journal.of_kind("load_ended")
    waited = max((float(note["at"]) for note in counters), default=run.start + seconds)
    times = measuring.latencies(run.spec.due(), journal.acks, run.start, waited - run.start)
    acked = max(1, len(times.acked_at))
    sent = measuring.grown(journal, "add_bytes_sent")
    quorum = run.configuration.quorum
    kinds = Counter(
        str(note["kind"])
        for note in journal.notes
        if note["at"] >= run.start and note["kind"][0].isupper()  # an event of the client
    )
    return RunResult(
        cell=run.cell,
        seconds=seconds,
        entry_bytes=run.spec.entry_bytes,
        latency=times.histogram(),
        per_second=PerSecond(
            measuring.acked_per_second(times.acked_at, seconds),
            tuple(measuring.slices(times, seconds, max(1, round(seconds)))),
        ),
        slices=tuple(measuring.slices(times, seconds, SLICE_COUNT)),
        unacknowledged_count=times.unacknowledged_count,
        failed_appends=sum(int(note["failed_appends"]) for note in counters),
        refused_count=sum(int(note["refused_count"]) for note in counters),
        late_ms_max=max((float(note["late_s_max"]) for note in counters), default=0.0) * 1e3,
        silence=measuring.silence(times.acked_at, seconds),
        marks=marks,
        changes=tuple(measuring.changes(journal, run.start)),
        at_ack_quorum=measuring.at_ack_quorum(journal, run.start),
        zones=measuring.zones(
            journal, run.start, run.scenario.zones_at_s, all_acknowledge=quorum.write == quorum.ack
        ),
        written_bytes_per_entry=run.written_bytes / acked,
        sent_bytes_per_entry=None if run.scenario.kills_writer else sent / acked,
        safety=tuple(safety),
        takeover=_takeover(run, journal, marks) if run.scenario.kills_writer else None,
        events=dict(sorted(kinds.items())),
    )


def _takeover(run: _Run, journal: Journal, marks: tuple[InjectionMark, ...]) -> Takeover:
    killed = marks[0].at + run.start
    closed = [float(note["at"]) - killed for note in journal.of_kind("recovered")]
    opened = [note["ledger_id"] for note in journal.of_kind("ledger_opened")]
    acks = [ack.at - killed for ack in journal.acks if ack.ledger_id == opened[-1]]
    has_new_ledger = len(opened) > 1 and bool(acks)
    return Takeover(closed[0] if closed else None, min(acks) if has_new_ledger else None)


READ_TIMEOUT_S: Final = 0.5
LOG_BYTES: Final = "log_bytes_written"


class BookieMeters:
    """Bytes written by some bookies since the first reading."""

    def __init__(self, bookies: Sequence[LocalBookie]) -> None:
        self._bookies = bookies
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._is_first_reading = True

    async def read(self) -> None:
        """Read every bookie that responds; keep the earlier figure of one that does not."""
        running = [bookie for bookie in self._bookies if bookie.is_running]
        answers = await asyncio.gather(*(_log_bytes(bookie) for bookie in running))
        for bookie, written in zip(running, answers, strict=True):
            if written is not None:
                self._last[bookie.pid] = written
                if self._is_first_reading:
                    self._first[bookie.pid] = written
        self._is_first_reading = False

    @property
    def written_bytes(self) -> int:
        """Bytes written to their logs; a process that was started later counts from its start."""
        return sum(last - self._first.get(pid, 0) for pid, last in self._last.items())


async def _log_bytes(bookie: LocalBookie) -> int | None:
    try:
        state = await get_json(f"{bookie.admin_url}/api/v1/state", timeout_s=READ_TIMEOUT_S)
    except AdminApiError:
        return None
    storage = state.get("storage") if isinstance(state, dict) else None
    written = storage.get(LOG_BYTES) if isinstance(storage, dict) else None
    return written if isinstance(written, int) else None


READY_TIMEOUT_S: Final = 30.0
LINE_BYTES_MAX: Final = 1024 * 1024


class LoadError(Exception):
    """A writing process did not get ready or did not end in order; the text has what it printed."""


class LoadProcess:
    """One writing process."""

    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        self._process: Process | None = None
        self._errors = Path(f"{spec.journal}.errors")

    async def start(self) -> list[str]:
        """Start the process; return its ledger's ensemble once it is ready (empty for a
        successor). Raises LoadError.
        """
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "quire.bench.load",
                self.spec.as_text(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C must reach only this process, which stops it
            )
        assert self._process.stdout is not None, "its output is a pipe"
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), READY_TIMEOUT_S)
        except TimeoutError:
            raise LoadError(f"the writer was not ready in time: {self._printed()}") from None
        if not line:
            raise LoadError(f"the writer ended at its start: {self._printed()}")
        ensemble: list[str] = json.loads(line)["ensemble"]
        return ensemble

    def begin(self, moment: float) -> None:
        """Send the moment at which its schedule starts."""
        self._send(f"go {moment!r}\n")

    def take_over(self, moment: float, ledger_id: int) -> None:
        """Make a successor recover a ledger and continue the schedule that began at a moment."""
        self._send(f"take {moment!r} {ledger_id}\n")

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        assert self._process is not None, "it was started"
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self, timeout_s: float) -> int:
        """Wait for its end; return its status. Raises LoadError after `timeout_s`."""
        assert self._process is not None, "it was started"
        try:
            return await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            raise LoadError(
                f"the writer did not end in {timeout_s:.0f} s: {self._printed()}"
            ) from None

    async def require_success(self, timeout_s: float) -> None:
        """Wait for its end. Raises LoadError, with what it printed, unless its status is 0."""
        status = await self.wait(timeout_s)
        if status != 0:
            raise LoadError(f"the writer ended with status {status}: {self._printed()}")

    async def aclose(self) -> None:
        """End the process if it still runs."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self.kill()
            await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _send(self, text: str) -> None:
        assert self._process is not None, "it was started"
        assert self._process.stdin is not None, "its input is a pipe"
        self._process.stdin.write(text.encode())

    def _printed(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-2_000:] or "(it printed nothing)"
