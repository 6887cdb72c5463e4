"""Quarantines double, end, and stay limited in number."""

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.bookies import placement
from ledger_client.bookies.placement import BOOKIES_MAX, Quarantine
from metadata.ids import BookieId

BOOKIE = BookieId("bookie-a")


def test_quarantines_double_up_to_the_maximum() -> None:
    quarantine = Quarantine(longest_s=30, shortest_s=5)
    assert [quarantine.record_failure(BOOKIE, "lost", 100) for _ in range(5)] == [
        105,
        110,
        120,
        130,
        130,
    ]


def test_a_quarantine_ends_by_itself_and_is_dropped() -> None:
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


def test_the_number_of_records_is_limited() -> None:
    quarantine = Quarantine(longest_s=30)
    for number in range(BOOKIES_MAX + 10):
        quarantine.record_failure(BookieId(f"bookie-{number}"), "lost", number)
    assert len(quarantine._records) == BOOKIES_MAX
    assert quarantine.reason(BookieId("bookie-9"), 9) is None
    assert quarantine.reason(BookieId("bookie-10"), 10) is not None


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 50)), max_size=60))
def test_no_quarantine_exceeds_the_maximum(failures: list[tuple[int, float]]) -> None:
    quarantine, now = Quarantine(longest_s=30), 0.0
    for number, pause in failures:
        now += pause
        until = quarantine.record_failure(BookieId(f"bookie-{number}"), "lost", now)
        assert now + placement.SHORTEST_S <= until <= now + 30
