"""Arithmetic on ranges of entries: which ones a bookie should hold, and which are missing.

Leaves requests to bookies to `ledger_client.reading.verification`. Pure.

Format: a range is (first, last), inclusive; lists of ranges ascend, and neither touch nor overlap.

Source: protocol rules 3.1 and 9.9.
"""

from collections.abc import Iterable, Sequence

from ledger_client.protocol.quorum import write_set_positions
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata

Range = tuple[int, int]


def expected_ranges(ledger: LedgerMetadata, last_entry_id: int) -> dict[BookieId, list[Range]]:
    """Return the ranges that each bookie of a ledger should hold, up to the last entry, without
    entries whose loss was accepted.
    """
    lost = [(each.first_entry_id, each.last_entry_id) for each in ledger.lost]
    expected: dict[BookieId, list[Range]] = {}
    for index, fragment in enumerate(ledger.fragments):
        end = last_entry_id
        if index + 1 < len(ledger.fragments):
            end = min(end, ledger.fragments[index + 1].first_entry_id - 1)
        for position, bookie_id in enumerate(fragment.ensemble):
            ranges = _stripes_of(ledger, position, fragment.first_entry_id, end)
            expected.setdefault(bookie_id, []).extend(ranges)
    return {bookie_id: without(merged(ranges), lost) for bookie_id, ranges in expected.items()}


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that touch or overlap."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def without(ranges: Sequence[Range], removed: Sequence[Range]) -> list[Range]:
    """Return the parts of `ranges` that are not in `removed`."""
    left: list[Range] = []
    removals = merged(removed)
    for first, last in ranges:
        at = first
        for gone_first, gone_last in removals:
            if gone_last < at or gone_first > last:
                continue
            if gone_first > at:
                left.append((at, gone_first - 1))
            at = gone_last + 1
        if at <= last:
            left.append((at, last))
    return left


def common(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return the parts of `ranges` that are in `others` too."""
    return without(ranges, without(ranges, others))


def entry_count(ranges: Iterable[Range]) -> int:
    """Return the number of entries in ranges."""
    return sum(last - first + 1 for first, last in ranges)


def describe_ranges(ranges: Sequence[Range], shown_max: int = 5) -> str:
    """Return ranges as text for people: '0-9, 12'."""
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:shown_max]]
    more = [f"and {len(ranges) - shown_max} more"] if len(ranges) > shown_max else []
    return ", ".join(shown + more)


def _stripes_of(ledger: LedgerMetadata, position: int, first: int, last: int) -> list[Range]:
    quorum = ledger.quorum
    if first > last:
        return []
    if quorum.ensemble_size == quorum.write_quorum:
        return [(first, last)]
    size = quorum.stripe_entries
    return [
        (max(first, stripe * size), min(last, (stripe + 1) * size - 1))
        for stripe in range(first // size, last // size + 1)
        if position in write_set_positions(quorum, EntryId(stripe * size))
    ]
