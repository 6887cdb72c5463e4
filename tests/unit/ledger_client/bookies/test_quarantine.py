"""Quarantine doubles, forgets, and stays small."""

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.bookies import quarantine as module
from ledger_client.bookies.quarantine import BOOKIES_MAX, Quarantine
from metadata.ids import BookieId

BOOKIE = BookieId("bookie-a")


def test_stays_double_up_to_the_longest() -> None:
    quarantine = Quarantine(longest_s=30, shortest_s=5)
    assert [quarantine.record_failure(BOOKIE, "lost", 100) for _ in range(5)] == [
        105,
        110,
        120,
        130,
        130,
    ]


def test_a_stay_ends_by_itself_and_is_forgotten() -> None:
    quarantine = Quarantine(longest_s=30, shortest_s=5)
    quarantine.record_failure(BOOKIE, "lost", 100)
    assert quarantine.reason(BOOKIE, 104) == "in quarantine for another 1 s: lost"
    assert quarantine.reason(BOOKIE, 105) is None
    assert quarantine.record_failure(BOOKIE, "lost", 159) == 169
    assert quarantine.record_failure(BOOKIE, "lost", 159 + 60) == 159 + 65


def test_release() -> None:
    quarantine = Quarantine(longest_s=30)
    quarantine.record_failure(BOOKIE, "lost", 0)
    quarantine.release(BOOKIE)
    quarantine.release(BookieId("unknown"))
    assert quarantine.reason(BOOKIE, 0) is None


def test_it_stays_small() -> None:
    quarantine = Quarantine(longest_s=30)
    for number in range(BOOKIES_MAX + 10):
        quarantine.record_failure(BookieId(f"bookie-{number}"), "lost", number)
    assert len(quarantine._records) == BOOKIES_MAX
    assert quarantine.reason(BookieId("bookie-9"), 9) is None
    assert quarantine.reason(BookieId("bookie-10"), 10) is not None


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 50)), max_size=60))
def test_no_stay_is_longer_than_the_longest(failures: list[tuple[int, float]]) -> None:
    quarantine, now = Quarantine(longest_s=30), 0.0
    for number, pause in failures:
        now += pause
        until = quarantine.record_failure(BookieId(f"bookie-{number}"), "lost", now)
        assert now + module.SHORTEST_S <= until <= now + 30
