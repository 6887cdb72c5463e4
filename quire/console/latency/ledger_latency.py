"""Latency of appends at a ledger's bookies, on one axis of time with its events. Pure.

Leaves samples to `append_ring`, events to `quire.console.ledger.timeline`, and the drawing to
`quire.console.drawings.latency_strips`.

Only the console knows these samples, since it started; they are of all ledgers of a bookie. The
latency of one ledger is known to its writer alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.drawings.latency_strips import Mark, Strip, latency_strips
from quire.console.latency.append_ring import AppendRing, Sample
from quire.console.ledger.timeline import Happened

BOOKIES_SHOWN_MAX: Final = 8
TABLE_ROWS_MAX: Final = 30
NO_APPENDS: Final = "no appends"
NO_ANSWER: Final = "no answer"
UNKNOWN: Final = "–"


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


def latency_view(
    ledger: LedgerMetadata, ring: AppendRing, events: Sequence[Happened]
) -> LatencyView | None:
    """Return the view of a ledger; None if there is no sample of its bookies."""
    members = list(
        dict.fromkeys(each for part in reversed(ledger.fragments) for each in part.ensemble)
    )
    found = {each: samples for each in members if (samples := ring.of(each))}
    if not found:
        return None
    shown = dict(list(found.items())[:BOOKIES_SHOWN_MAX])
    since_ms = min(samples[0].at_ms for samples in shown.values())
    until_ms = max(samples[-1].at_ms for samples in shown.values())
    timed = [(number, each) for number, each in enumerate(events, 1) if each.time_ms is not None]
    marks = [
        Mark(number, each.time_ms, each.what)
        for number, each in timed
        if each.time_ms is not None and since_ms <= each.time_ms <= until_ms
    ]
    before = sum(each.time_ms is not None and each.time_ms < since_ms for _, each in timed)
    strips = [Strip(str(each), samples) for each, samples in shown.items()]
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
    count = min(TABLE_ROWS_MAX, max(len(each) for each in columns))
    length_ms = (until_ms - since_ms) // count + 1
    rows = []
    for number in range(count):
        first, end = since_ms + number * length_ms, since_ms + (number + 1) * length_ms
        cells = [_cell([s for s in samples if first <= s.at_ms < end]) for samples in columns]
        events = [each.number for each in marks if first <= each.at_ms < end]
        rows.append(LatencyRow(first, tuple(cells), tuple(events)))
    return tuple(rows)


def _cell(samples: Sequence[Sample]) -> str:
    known = [each.p99_us for each in samples if each.p99_us is not None]
    if any(known):
        return f"{max(known) / 1_000:g} ms"
    if known:
        return NO_APPENDS
    return NO_ANSWER if samples else UNKNOWN
