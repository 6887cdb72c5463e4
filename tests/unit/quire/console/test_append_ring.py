"""The ring of samples keeps within its bounds."""

import pytest

from metadata.ids import BookieId
from quire.console import latency
from quire.console.latency import SAMPLES_MAX, AppendRing, Sample

A, B, C = (BookieId(each) for each in "abc")


def test_the_oldest_samples_are_dropped() -> None:
    ring = AppendRing()
    for at_ms in range(SAMPLES_MAX + 5):
        ring.note(A, Sample(at_ms, 1))
    assert [each.at_ms for each in ring.of(A)] == list(range(5, SAMPLES_MAX + 5))
    assert ring.of(B) == ()


def test_the_bookie_that_was_asked_least_recently_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency, "BOOKIES_MAX", 2)
    ring = AppendRing()
    for at_ms, each in enumerate((A, B, A, C)):
        ring.note(each, Sample(at_ms, None))
    assert [len(ring.of(each)) for each in (A, B, C)] == [2, 0, 1]
