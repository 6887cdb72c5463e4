"""An absent member is contacted less and less often, and counts from when it first left (rule
11.3).
"""

from itertools import pairwise

from ledger_client.writing.in_sync_members import (
    ASK_PAUSE_MAX_S,
    ASK_PAUSE_MIN_S,
    STAYED_S,
    AwayMembers,
)
from metadata.ids import BookieId

A, B = BookieId("a"), BookieId("b")


def test_an_absent_member_is_contacted_once_per_pause() -> None:
    away = AwayMembers()
    away.note([A], [B], 10.0)
    assert away.bookie_ids == [A]
    assert away.due(10.0) == [A]
    assert away.due(10.0 + ASK_PAUSE_MIN_S / 2) == []
    assert away.due(10.0 + ASK_PAUSE_MIN_S) == [A]
    assert away.longest_s(14.0) == 4.0


def test_a_member_that_comes_and_goes_is_contacted_less_often_and_away_since_the_first_time() -> (
    None
):
    away, now, asked = AwayMembers(), 0.0, []
    for _ in range(12):
        away.note([A], [B], now)
        while not away.due(now):
            now += 0.5
        asked.append(now)
        away.note([], [A, B], now)  # it is back, and leaves again at once
        assert away.bookie_ids == []
    away.note([A], [B], now)
    pauses = [b - a for a, b in pairwise(asked)]
    assert pauses == [min(2.0**n * ASK_PAUSE_MIN_S, ASK_PAUSE_MAX_S) for n in range(1, 12)]
    assert away.longest_s(now) == now


def test_a_member_that_came_back_and_stayed_starts_afresh() -> None:
    away = AwayMembers()
    away.note([A], [B], 0.0)
    away.note([], [A, B], 5.0)
    away.note([], [A, B], 20.0)
    back_s = 5.0 + STAYED_S
    away.note([A], [B], back_s)
    assert away.due(back_s) == [A]
    assert away.longest_s(back_s) == 0.0


def test_a_member_that_came_back_is_remembered_until_it_has_stayed() -> None:
    away = AwayMembers()
    away.note([A], [B], 0.0)
    away.note([], [A, B], 20.0)
    away.note([A], [B], 19.0 + STAYED_S)
    assert away.due(19.0 + STAYED_S) == []
    assert away.longest_s(19.0 + STAYED_S) == 19.0 + STAYED_S


def test_the_longest_absence_is_that_of_the_member_that_left_first() -> None:
    away = AwayMembers()
    away.note([A], [B], 0.0)
    away.note([A, B], [], 10.0)
    assert away.bookie_ids == [A, B]
    assert away.longest_s(15.0) == 15.0


def test_a_replaced_member_is_dropped() -> None:
    away = AwayMembers()
    away.note([A], [B], 0.0)
    away.note([], [B], 1.0)
    assert away.bookie_ids == []
    assert away.longest_s(50.0) == 0.0
    away.note([A], [B], 10.0)
    assert away.due(10.0) == [A], "nothing of its first absence is left"
    assert away.longest_s(10.0) == 0.0
