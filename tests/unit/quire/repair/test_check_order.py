"""Order in which closed ledgers are compared with their bookies (9.16)."""

from dataclasses import replace

import pytest

from metadata.ids import LedgerId
from metadata.repair.settings import DEFAULTS, RepairSettings
from quire.repair import missing_copies as check_order
from quire.repair.missing_copies import WALK_EVERY_S_MIN, CheckOrder

DAY_MS = 24 * 3600 * 1000
KNOWN = (2, 5, 9)


def closed_below(ledger_id: int) -> LedgerId | None:
    found = [each for each in KNOWN if each < ledger_id]
    return LedgerId(max(found)) if found else None


def drawn(order: CheckOrder) -> list[int]:
    found: list[int] = []
    while (ledger_id := order.next(closed_below)) is not None:
        found.append(ledger_id)
    return found


@pytest.fixture
def order() -> CheckOrder:
    return CheckOrder()


def test_a_walk_begins_with_the_newest_ledger(order: CheckOrder) -> None:
    assert drawn(order) == []
    order.begin_if_due(DEFAULTS, 1_000)
    assert drawn(order) == [9, 5, 2]
    assert drawn(order) == []


def test_a_closed_ledger_is_compared_before_the_walk_continues(order: CheckOrder) -> None:
    order.note_closed(LedgerId(1))
    assert drawn(order) == [], "the first walk finds it"
    order.begin_if_due(DEFAULTS, 1_000)
    assert order.next(closed_below) == 9
    order.note_closed(LedgerId(12))
    order.note_closed(LedgerId(11))
    assert drawn(order) == [12, 11, 5, 2]


def test_a_ledger_that_was_put_off_waits_for_a_retry(order: CheckOrder) -> None:
    order.put_off(LedgerId(4))
    assert drawn(order) == []
    order.retry()
    assert drawn(order) == [4]
    order.retry()
    assert drawn(order) == []


@pytest.mark.parametrize(
    ("settings", "passed_ms", "begins"),
    [
        (DEFAULTS, 6 * DAY_MS, False),
        (DEFAULTS, 7 * DAY_MS, True),
        (replace(DEFAULTS, scrub_every_s=0), 700 * DAY_MS, False),
        (replace(DEFAULTS, scrub_every_s=1), 2_000, False),
        (replace(DEFAULTS, scrub_every_s=1), WALK_EVERY_S_MIN * 1000, True),
        (replace(DEFAULTS, scrub_requested_ms=77), 1, True),
    ],
)
def test_a_walk_is_repeated_at_the_interval_of_scrubs_and_at_a_request(
    order: CheckOrder, settings: RepairSettings, passed_ms: int, *, begins: bool
) -> None:
    order.begin_if_due(DEFAULTS, 1_000)
    drawn(order)
    order.begin_if_due(settings, 1_000 + passed_ms)
    assert bool(drawn(order)) is begins
    order.begin_if_due(settings, 1_001 + passed_ms)
    assert drawn(order) == [], "a request is served once"


def test_what_finds_no_room_is_found_by_a_walk(
    order: CheckOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_order, "WAITING_MAX", 2)
    order.begin_if_due(DEFAULTS, 1_000)
    drawn(order)
    order.note([LedgerId(each) for each in (1, 2, 1)])
    order.begin_if_due(DEFAULTS, 1_000 + WALK_EVERY_S_MIN * 1000)
    assert drawn(order) == [1, 2]
    order.note([LedgerId(each) for each in (1, 2, 3)])
    order.begin_if_due(DEFAULTS, 999 + WALK_EVERY_S_MIN * 1000)
    assert drawn(order) == [1, 2]
    order.begin_if_due(DEFAULTS, 1_000 + WALK_EVERY_S_MIN * 1000)
    assert drawn(order) == [9, 5, 2]
