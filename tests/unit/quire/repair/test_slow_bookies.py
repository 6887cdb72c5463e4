"""How far copying at a bookie slows down, and how it comes back."""

from metadata.ids import BookieId
from quire.repair.pacing import PART_MIN, SlowBookies

A, B = BookieId("a"), BookieId("b")


def test_the_part_halves_down_to_a_least_part() -> None:
    slow = SlowBookies()
    parts: list[float] = []
    for _ in range(6):
        slow.note(A, is_slow=True)
        parts.append(slow.part(A))
    assert parts == [0.5, 0.25, 0.125, PART_MIN, PART_MIN, PART_MIN]
    assert slow.part(B) == 1.0


def test_the_part_doubles_until_it_is_whole() -> None:
    slow = SlowBookies()
    slow.note(B, is_slow=False)
    for is_slow in (True, True, False):
        slow.note(A, is_slow=is_slow)
    assert list(slow) == [A]
    assert slow.part(A) == 0.5
    slow.note(A, is_slow=False)
    assert not list(slow)
    slow.note(A, is_slow=False)
    assert slow.part(A) == 1.0
