"""Summary of the auditor: stored form."""

from dataclasses import replace

import msgpack
import pytest

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.repair.status import (
    AWAY_MAX,
    BLOCKED_REASONS_MAX,
    STATUS_CODEC,
    AwayBookie,
    BlockedTotal,
    RepairStatus,
    UrgencyTotal,
    shortened,
)

FIRST = RepairStatus("bookie-a", 5, None, 6)
FULL = RepairStatus(
    auditor_id="bookie-a",
    since_ms=5,
    audited_ms=7,
    written_ms=8,
    totals=(UrgencyTotal(0, 1, 10), UrgencyTotal(2, 41, 2**40)),
    bytes_left=2**40 + 10,
    bytes_per_s=50_000_000,
    eta_s=21_990,
    blocked=(BlockedTotal("needs 4 bookies, has 3", 9), BlockedTotal("no target", 2)),
    lost_ledgers=3,
    away=(AwayBookie(BookieId("b"), 3), AwayBookie(BookieId("a"), 4)),
)


@pytest.mark.parametrize("status", [FIRST, FULL, replace(FULL, audited_ms=0, eta_s=0)])
def test_a_summary_round_trips(status: RepairStatus) -> None:
    assert STATUS_CODEC.unpack("/s", STATUS_CODEC.pack("/s", status)) == status


def test_the_reasons_of_the_most_ledgers_are_stored() -> None:
    blocked = tuple(BlockedTotal(f"reason {i}", i) for i in range(100))
    stored = shortened(replace(FULL, blocked=blocked)).blocked
    assert stored == tuple(reversed(blocked[-BLOCKED_REASONS_MAX:]))


def test_the_bookies_that_are_away_for_the_longest_time_are_stored() -> None:
    away = tuple(AwayBookie(BookieId(f"b{i}"), 5_000 - i) for i in range(AWAY_MAX + 1))
    assert shortened(replace(FULL, away=away)).away == tuple(reversed(away[1:]))


def test_the_fields_in_their_order() -> None:
    assert msgpack.unpackb(STATUS_CODEC.pack("/s", FULL)) == [
        *(1, "bookie-a", 5, 7, 8, [[0, 1, 10], [2, 41, 2**40]]),
        *(2**40 + 10, 50_000_000, 21_990),
        *([["needs 4 bookies, has 3", 9], ["no target", 2]], 3, [["b", 3], ["a", 4]]),
    ]


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (0, 2),
        (1, b"bookie-a"),
        (2, None),
        (3, -1),
        (4, "8"),
        (5, [[1, 2]]),
        (5, [[10, 2, 3]]),
        (6, -1),
        (7, 1.5),
        (8, "soon"),
        (9, [["reason"]]),
        (9, [[1, 2]]),
        (10, True),
        (11, [["a"]]),
        (11, [["not an id", 5]]),
        (11, 5),
    ],
)
def test_other_values_are_a_format_error(index: int, field: object) -> None:
    fields = msgpack.unpackb(STATUS_CODEC.pack("/s", FULL))
    fields[index] = field
    with pytest.raises(MetadataFormatError, match="/s"):
        STATUS_CODEC.unpack("/s", msgpack.packb(fields))
    with pytest.raises(MetadataFormatError, match="/s"):
        STATUS_CODEC.unpack("/s", msgpack.packb(fields[:-2]))


def test_a_summary_with_too_many_fields_is_a_format_error() -> None:
    fields = msgpack.unpackb(STATUS_CODEC.pack("/s", FULL))
    with pytest.raises(MetadataFormatError, match="/s"):
        STATUS_CODEC.unpack("/s", msgpack.packb([*fields, []]))
