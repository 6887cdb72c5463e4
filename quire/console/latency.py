"""Latency of appends at bookies, since the console started, beside what happened to a ledger.

Source: docs/console.md, "Latency of appends"; protocol rules 1.4, 1.5, 5.1, 7.1, 9.1, 9.9 and 11.6.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from markupsafe import Markup

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import Cluster
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.repair.claims import Claim
from metadata.repair.jobs import Job
from quire.operate.repair import copied_text

SAMPLES_MAX: Final = 360
"""An hour of samples, at one each 10 s."""
BOOKIES_MAX: Final = 200
WIDTH: Final = 1_000
"""Width of the curves in units, which become as wide as PLOT_PERCENT of the drawing."""
PLOT_PERCENT: Final = 84
"""Part of the width that the curves have; the rest is for the axis of milliseconds."""
STRIP_HEIGHT: Final = 64
NAME_HEIGHT: Final = 32
AXIS_HEIGHT: Final = 24
LEAST_MS: Final = 1.0
MOST_MS: Final = 10_000.0
TICKS_MS: Final[Mapping[int, str]] = MappingProxyType({1: "1 ms", 100: "100 ms", 10_000: "10 s"})
GAP_MS: Final = 25_000
"""Time between two samples above which nothing is drawn between them."""
BOX: Final = 6
LOOK_EVERY_S: Final = 10.0
PING_S_MAX: Final = 2.0
BOOKIES_SHOWN_MAX: Final = 8
TABLE_ROWS_MAX: Final = 30
NO_APPENDS: Final = "no appends"
NO_ANSWER: Final = "no answer"
UNKNOWN: Final = "–"
FRAGMENTS_SHOWN_MAX: Final = 40
"""Maximum number of ensemble changes; the newest are shown."""
LOST_SHOWN_MAX: Final = 20


class Sample(NamedTuple):
    """What a bookie said at one time."""

    at_ms: int
    """Milliseconds since 1970."""
    p99_us: int | None
    """p99 of the appends of clients in the 5 to 10 s before, rounded up; 0 without appends; None
    if the bookie did not answer.
    """


class AppendRing:
    """Samples of all bookies."""

    def __init__(self) -> None:
        self._samples: dict[BookieId, deque[Sample]] = {}

    def note(self, bookie_id: BookieId, sample: Sample) -> None:
        """Keep one more sample, the newest of its bookie."""
        kept = self._samples.pop(bookie_id, None)  # to the end: the newest are dropped last
        if kept is None:
            kept = deque(maxlen=SAMPLES_MAX)
        kept.append(sample)
        self._samples[bookie_id] = kept
        if len(self._samples) > BOOKIES_MAX:
            del self._samples[next(iter(self._samples))]

    def of(self, bookie_id: BookieId) -> Sequence[Sample]:
        """Return the samples of a bookie, the oldest first."""
        return tuple(self._samples.get(bookie_id, ()))


@dataclass(frozen=True, slots=True)
class Mark:
    """One event of the list beside the drawing."""

    number: int
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The samples of one bookie."""

    name: str
    samples: Sequence[Sample]


def latency_strips(
    strips: Sequence[Strip], marks: Sequence[Mark], since_ms: int, until_ms: int
) -> Markup:
    """Return the drawing."""
    span = max(1, until_ms - since_ms)

    def across(at_ms: int) -> float:
        return (at_ms - since_ms) / span

    height = len(strips) * (STRIP_HEIGHT + NAME_HEIGHT)
    parts = []
    for number, strip in enumerate(strips):
        top = number * (STRIP_HEIGHT + NAME_HEIGHT) + NAME_HEIGHT
        curves = [
            _curve([(across(at) * WIDTH, _down(us)) for at, us in run])
            for run in _runs(strip.samples)
        ]
        parts.append(_frame(strip.name, top, Markup("").join(curves)))
        away = [sample.at_ms for sample in strip.samples if sample.p99_us is None]
        parts += [_crossed(across(at) * PLOT_PERCENT, top) for at in away]
    for mark in marks:
        parts.append(
            Markup(
                '<g><line class="mark" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="{1}"></line>'
                '<text class="head" x="{0:.2f}%" dx="4" y="12">{2}</text><title>{3}</title></g>'
            ).format(across(mark.at_ms) * PLOT_PERCENT, height, mark.number, mark.text)
        )
    return Markup(
        '<svg width="100%" height="{}" class="map latency" role="img"'
        ' aria-labelledby="latency-title latency-text">'
        '<title id="latency-title">Latency of appends at the bookies</title>'
        '<desc id="latency-text">p99 of appends, from 1 ms at the bottom to 10 s at the top of each'
        " strip, over time from left to right. Numbered lines are events.</desc>{}{}</svg>"
    ).format(height + AXIS_HEIGHT, Markup("").join(parts), _times(since_ms, until_ms, height))


def _times(since_ms: int, until_ms: int, height: int) -> Markup:
    """Return the axis of time: its begin, its middle and its end, in UTC."""
    places = (
        (0.0, "start", since_ms, ""),
        (PLOT_PERCENT / 2, "middle", (since_ms + until_ms) // 2, ""),
        (PLOT_PERCENT, "end", until_ms, " UTC"),
    )
    return Markup("").join(
        Markup('<text class="head" x="{}%" y="{}" text-anchor="{}">{}</text>').format(
            place, height + AXIS_HEIGHT - 4, anchor, f"{_clock(at_ms)}{zone}"
        )
        for place, anchor, at_ms, zone in places
    )


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M:%S}"


def _frame(name: str, top: int, curves: Markup) -> Markup:
    """Return one strip: its name, its axis, and its curves, which alone are stretched."""
    lines = Markup("").join(
        Markup(
            '<line class="tick" x1="0" x2="{0}%" y1="{1:.1f}" y2="{1:.1f}"></line>'
            '<text class="head" x="{0}%" dx="8" y="{2:.1f}">{3}</text>'
        ).format(PLOT_PERCENT, y := top + _down(tick_ms * 1_000), y + 4, text)
        for tick_ms, text in TICKS_MS.items()
    )
    return Markup(
        '<text x="0" y="{0}">{1}</text>{2}<svg x="0" y="{3}" width="{4}%" height="{5}"'
        ' viewBox="0 0 {6} {5}" preserveAspectRatio="none" overflow="visible">{7}</svg>'
    ).format(top - 7, name, lines, top, PLOT_PERCENT, STRIP_HEIGHT, WIDTH, curves)


def _runs(samples: Sequence[Sample]) -> list[list[tuple[int, int]]]:
    """Split the samples into runs with appends, without a gap."""
    runs: list[list[tuple[int, int]]] = [[]]
    for at_ms, p99_us in samples:
        if not p99_us:
            runs.append([])
            continue
        if runs[-1] and at_ms - runs[-1][-1][0] > GAP_MS:
            runs.append([])
        runs[-1].append((at_ms, p99_us))
    return [run for run in runs if run]


def _curve(places: Sequence[tuple[float, float]]) -> Markup:
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    kind, end = ("curve", "") if len(places) > 1 else ("point", "h0")
    return Markup('<path class="{}" d="M{}{}"></path>').format(kind, steps, end)


def _crossed(percent: float, top: int) -> Markup:
    return Markup(
        '<svg x="{0:.2f}%" y="{1}" width="{2}" height="{3}"><path class="away"'
        ' d="M0 0H{2}V{3}H0zL{2} {3}"><title>no answer</title></path></svg>'
    ).format(percent, top, BOX, STRIP_HEIGHT)


def _down(p99_us: int) -> float:
    """Return the distance from the top of a strip."""
    ms = min(max(p99_us / 1_000, LEAST_MS), MOST_MS)
    share = math.log10(ms / LEAST_MS) / math.log10(MOST_MS / LEAST_MS)
    return STRIP_HEIGHT * (1 - share)


class AppendPings:
    """Looks at the bookies that are up.

    `AppendPings` asks all bookies again and again; `AppendRing` keeps the last samples. The answer
    to a ping has the p99 of the last five to ten seconds, as repair uses it. These samples are of
    all ledgers of a bookie: the latency of one ledger is known to its writer alone.

    One look runs at a time; each bookie is asked once per look, for at most PING_S_MAX; at most
    SAMPLES_MAX samples of a bookie are kept, and at most BOOKIES_MAX bookies: the one whose last
    sample is the oldest is dropped first; the samples of a bookie ascend in time. All strips share
    one axis of time and one logarithmic axis of milliseconds; a time without an answer is a crossed
    box, a time without appends is empty.
    """

    def __init__(self, cluster: Cluster, wall_clock_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._wall_clock_ms = wall_clock_ms
        self.ring = AppendRing()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        pool = self._cluster.open_pool()
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                await self._look(pool)
        finally:
            await pool.aclose()

    async def _look(self, pool: BookiePool) -> None:
        bookies = list(islice(self._cluster.directory.bookies, BOOKIES_MAX))
        answers = await asyncio.gather(*[_p99_us(pool, bookie) for bookie in bookies])
        at_ms = self._wall_clock_ms()
        for bookie_id, p99_us in zip(bookies, answers, strict=True):
            self.ring.note(bookie_id, Sample(at_ms, p99_us))


async def _p99_us(pool: BookiePool, bookie_id: BookieId) -> int | None:
    try:
        return (await pool.ping(bookie_id, timeout_s=PING_S_MAX)).append_p99_us
    except BookieCallError:
        return None


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """What the table shows of one part of the time."""

    from_ms: int
    cells: tuple[str, ...]
    """The greatest p99 at each bookie in this part."""
    events: tuple[int, ...]
    """Numbers of the events in this part."""


@dataclass(frozen=True, slots=True)
class LatencyView:
    """What the page shows."""

    since_ms: int
    until_ms: int
    bookies: tuple[BookieId, ...]
    left_out: int
    """Bookies of the ledger that do not fit."""
    drawn: Markup
    rows: tuple[LatencyRow, ...]
    events_before: int
    """Number of events with a time before the first sample."""


@dataclass(frozen=True, slots=True)
class Happened:
    """One event, in the order of events.

    The metadata has no times for the beginnings of fragments, for recovery and for the close: these
    events have their order only. A repair replaces bookies in a fragment, so that the fragment no
    longer names those that it had at first.
    """

    what: str
    time_ms: int | None = None
    """None if no record has its time; in milliseconds since 1970."""


def latency_view(
    ledger: LedgerMetadata, ring: AppendRing, events: Sequence[Happened]
) -> LatencyView | None:
    """Return the view of a ledger; None if there is no sample of its bookies."""
    members = list(
        dict.fromkeys(bookie for part in reversed(ledger.fragments) for bookie in part.ensemble)
    )
    measured = {member: samples for member in members if (samples := ring.of(member))}
    if not measured:
        return None
    shown = dict(list(measured.items())[:BOOKIES_SHOWN_MAX])
    since_ms = min(samples[0].at_ms for samples in shown.values())
    until_ms = max(samples[-1].at_ms for samples in shown.values())
    timed = [(number, event) for number, event in enumerate(events, 1) if event.time_ms is not None]
    marks = [
        Mark(number, happened.time_ms, happened.what)
        for number, happened in timed
        if happened.time_ms is not None and since_ms <= happened.time_ms <= until_ms
    ]
    before = sum(event.time_ms is not None and event.time_ms < since_ms for _, event in timed)
    strips = [Strip(str(bookie), samples) for bookie, samples in shown.items()]
    return LatencyView(
        since_ms,
        until_ms,
        tuple(shown),
        len(members) - len(shown),
        latency_strips(strips, marks, since_ms, until_ms),
        _rows(list(shown.values()), marks, since_ms, until_ms),
        before,
    )


def _rows(
    columns: Sequence[Sequence[Sample]], marks: Sequence[Mark], since_ms: int, until_ms: int
) -> tuple[LatencyRow, ...]:
    count = min(TABLE_ROWS_MAX, max(len(column) for column in columns))
    length_ms = (until_ms - since_ms) // count + 1
    rows = []
    for number in range(count):
        first, end = since_ms + number * length_ms, since_ms + (number + 1) * length_ms
        cells = [_cell([s for s in samples if first <= s.at_ms < end]) for samples in columns]
        events = [mark.number for mark in marks if first <= mark.at_ms < end]
        rows.append(LatencyRow(first, tuple(cells), tuple(events)))
    return tuple(rows)


def _cell(samples: Sequence[Sample]) -> str:
    known = [sample.p99_us for sample in samples if sample.p99_us is not None]
    if any(known):
        return f"{max(known) / 1_000:,g} ms"
    if known:
        return NO_APPENDS
    return NO_ANSWER if samples else UNKNOWN


def timeline(ledger: LedgerMetadata, job: Job | None, claim: Claim | None) -> list[Happened]:
    """Return the events, the oldest first."""
    return [
        Happened(f"created by {ledger.writer}", ledger.created_ms),
        *_changes(ledger.fragments),
        *_end(ledger),
        *_repair(job, claim),
    ]


def _changes(fragments: Sequence[Fragment]) -> list[Happened]:
    changes = list(enumerate(pairwise(fragments), 1))
    shown = changes[-FRAGMENTS_SHOWN_MAX:]
    happened = [Happened(_change(index, before, after)) for index, (before, after) in shown]
    if len(shown) < len(changes):
        count = len(changes) - len(shown)
        happened.insert(0, Happened(f"{count:,} older ensemble changes, which are not shown"))
    return happened


def _change(index: int, before: Fragment, after: Fragment) -> str:
    left = [bookie for bookie in before.ensemble if bookie not in after.ensemble]
    came = [bookie for bookie in after.ensemble if bookie not in before.ensemble]
    text = f"fragment {index} begins at entry {after.first_entry_id:,}"
    if left and came:
        return f"{text}: {', '.join(came)} in place of {', '.join(left)}"
    if left:
        return f"{text}: {', '.join(left)} left"
    return f"{text}: {', '.join(came)} joined" if came else f"{text}: the same bookies"


def _end(ledger: LedgerMetadata) -> list[Happened]:
    if ledger.state is LedgerState.IN_RECOVERY:
        return [Happened("recovery began: the writer is fenced, and the end is being found")]
    if ledger.state is LedgerState.OPEN:
        return []
    assert ledger.last_entry_id is not None, "a closed ledger has an end"
    end = ledger.last_entry_id
    closed = "closed without entries" if end < 0 else f"closed at entry {end:,}"
    ends = [Happened(f"{closed}, by its writer or by a recovery")]
    if ledger.given_up:
        first = ledger.given_up[0].first_entry_id
        ends.append(Happened(f"an unclean recovery gave up the entries from {first:,} on"))
    lost = sorted(ledger.lost, key=lambda range_: range_.accepted_ms)[-LOST_SHOWN_MAX:]
    for lost_range in lost:
        last = "on" if lost_range.is_after_the_end else f"to {lost_range.last_entry_id:,}"
        text = f"the loss of the entries from {lost_range.first_entry_id:,} {last} was accepted"
        ends.append(Happened(text, lost_range.accepted_ms))
    return ends


def _repair(job: Job | None, claim: Claim | None) -> list[Happened]:
    events = []
    if job is not None:
        events.append(Happened(f"a repair is needed: {'; '.join(job.reasons)}", job.since_ms))
    if claim is not None:
        copied = f"{copied_text(claim)}" + (f" to {claim.target}" if claim.target else "")
        text = f"worker {claim.worker_id} repairs it: {copied}"
        events.append(Happened(text, claim.since_ms))
    return events
