"""Silence is suspicious only while others answer, and only a limited number of times, and so are
late answers (protocol 5.7).
"""

from ledger_client.protocol.suspicion import (
    BookieObservation,
    LateBookies,
    SuspicionBudget,
    SuspicionLimits,
    suspect_after_s,
    suspects,
)
from metadata.ids import BookieId

LIMITS = SuspicionLimits(after_min_s=0.2, after_max_s=2.0, latency_multiple=8, per_minute_max=3)
NOW = 100.0


def seen(
    name: str, oldest: float | None, answered: float | None, tail_s: float = 0.005
) -> BookieObservation:
    return BookieObservation(BookieId(name), oldest, answered, tail_s)


def test_a_silent_bookie_among_answering_ones_is_suspected() -> None:
    observed = [seen("a", 99.7, 99.69), seen("b", 99.999, 99.99), seen("c", None, 99.98)]
    assert suspects(observed, NOW, LIMITS) == ["a"]


def test_one_append_that_all_others_answered_at_once_is_enough() -> None:
    observed = [seen("a", 99.5, 99.49), seen("b", None, 99.501), seen("c", None, 99.502)]
    assert suspects(observed, NOW, LIMITS) == ["a"]


def test_two_silent_bookies_do_not_vouch_for_each_other() -> None:
    observed = [seen("a", 99.0, 98.99), seen("b", 99.1, 99.05)]
    assert suspects(observed, NOW, LIMITS) == []


def test_no_bookie_is_suspected_when_all_are_silent() -> None:
    observed = [seen("a", 99.0, 98.99), seen("b", 99.0, 98.98), seen("c", 99.0, 98.99)]
    assert suspects(observed, NOW, LIMITS) == []


def test_a_bookie_that_owes_nothing_is_not_silent() -> None:
    assert suspects([seen("a", None, 10.0), seen("b", 99.99, 99.99)], NOW, LIMITS) == []


def test_a_busy_bookie_that_answers_is_not_silent() -> None:
    """Its oldest add is old, but it has just answered another one."""
    assert suspects([seen("a", 98.0, 99.95), seen("b", 99.9, 99.99)], NOW, LIMITS) == []


def test_silence_is_measured_against_the_others_latency() -> None:
    slow = [seen("a", 99.7, 99.69), seen("b", 99.9, 99.99, tail_s=0.1)]
    assert suspect_after_s(slow[1:], LIMITS) == 0.8
    assert suspects(slow, NOW, LIMITS) == []
    assert suspect_after_s([], LIMITS) == LIMITS.after_min_s
    assert suspect_after_s([seen("b", None, None, tail_s=9)], LIMITS) == LIMITS.after_max_s


def test_suspicions_are_few_per_minute() -> None:
    budget = SuspicionBudget(per_minute_max=2)
    assert [budget.take(t) for t in (0.0, 1.0, 2.0)] == [True, True, False]
    assert [budget.take(t) for t in (60.5, 60.6, 61.5)] == [True, False, True]


def test_a_bookie_that_never_answered_is_silent_since_its_first_request() -> None:
    assert seen("a", 99.0, None).silent_since == 99.0
    assert seen("a", 99.0, 99.5).silent_since == 99.5
    assert seen("a", None, 99.5).silent_since is None
    observed = [seen("a", 99.0, None), seen("b", None, 99.9), seen("c", 99.95, None)]
    assert suspects(observed, NOW, LIMITS) == ["a"]


def test_the_slowest_of_the_others_sets_the_limit() -> None:
    others = [seen("b", None, 99.9, tail_s=0.05), seen("c", None, 99.9, tail_s=0.1)]
    assert suspect_after_s(others, LIMITS) == 0.8
    own = seen("a", 99.5, None, tail_s=1.0)
    assert suspects([own, seen("b", None, 99.9)], NOW, LIMITS) == ["a"], "its own does not count"


def test_exactly_the_limit_is_not_too_long() -> None:
    limits = SuspicionLimits(
        after_min_s=0.25, after_max_s=2.0, latency_multiple=8, per_minute_max=3
    )
    other = seen("b", None, 100.0, tail_s=0.0)
    assert suspects([seen("a", 99.75, None), other], NOW, limits) == []
    slow = seen("b", None, 100.0, tail_s=0.0625)
    assert suspects([seen("a", 99.5, None), slow], NOW, limits) == []
    assert suspects([seen("a", 99.25, None), slow], NOW, limits) == ["a"]


def test_each_of_several_silent_bookies_is_suspected() -> None:
    observed = [seen("a", None, 99.0), seen("b", 99.3, 99.2), seen("c", 99.4, 99.3)]
    observed += [seen("d", None, 99.99), seen("e", 99.0, 98.0)]
    assert suspects(observed, NOW, LIMITS) == ["b", "c", "e"]


def test_only_a_bookie_that_has_answered_since_vouches() -> None:
    """It answered at or after the beginning of the silence, and is silent itself for at most half
    the shortest limit.
    """
    limits = SuspicionLimits(
        after_min_s=0.25, after_max_s=2.0, latency_multiple=8, per_minute_max=3
    )
    silent = seen("a", 99.5, None)
    for other, vouches in [
        (seen("b", None, None), False),
        (seen("b", None, 99.25), False),
        (seen("b", None, 99.5), True),
        (seen("b", 99.875, 99.5), True),
        (seen("b", 99.75, 99.8125), False),
        (seen("b", 99.75, 99.875), True),
    ]:
        assert suspects([silent, other], NOW, limits) == (["a"] if vouches else []), other


def test_a_suspicion_counts_for_a_minute_and_no_longer() -> None:
    budget = SuspicionBudget(per_minute_max=1)
    assert [budget.take(t) for t in (0.0, 60.0, 60.5)] == [True, False, True]


def test_one_slow_bookie_among_three_others_does_not_raise_the_limit() -> None:
    others = [seen("b", None, 99.9, tail_s=5.0), seen("c", None, 99.9, tail_s=0.05)]
    others += [seen("d", None, 99.9, tail_s=0.1), seen("e", None, None, tail_s=0.0)]
    assert suspect_after_s(others, LIMITS) == 0.8


def looks(
    late: LateBookies, ages_s: list[float], *, other_s: float = 0.0
) -> list[tuple[int, list[BookieId]]]:
    """Look 20 times a second; return the looks that found late bookies. A has just answered at each
    look, and its oldest add has one of the ages; the oldest add of B has another one.
    """
    seen_late: list[tuple[int, list[BookieId]]] = []
    for number, age_s in enumerate(ages_s, 1):
        now = NOW + number / 20
        observed = [seen("a", now - age_s, now - 0.01), seen("b", now - other_s, now - 0.01)]
        assert suspects(observed, now, LIMITS) == []
        names = late.note(observed, now, LIMITS)
        if names:
            seen_late.append((number, names))
    return seen_late


def test_a_bookie_that_is_late_again_and_again_is_suspected() -> None:
    assert looks(LateBookies(10), [0.5] * 25) == [(10, ["a"]), (20, ["a"])]
    assert looks(LateBookies(10), [0.5, 0.0] * 30) == [(37, ["a"])]


def test_a_bookie_that_is_late_now_and_then_is_not_suspected() -> None:
    assert looks(LateBookies(10), [0.5, 0.0, 0.0] * 100) == []
    assert looks(LateBookies(10), [0.19] * 100) == []
    assert looks(LateBookies(10), ([0.5] * 9 + [0.0] * 18) * 5) == [], "a longer pause each time"


def test_bookies_that_are_late_together_are_not_suspected() -> None:
    assert looks(LateBookies(10), [0.5] * 100, other_s=0.4) == []
