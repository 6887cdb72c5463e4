"""A confirmation is valid until a marker of its producer comes."""

from broker_layer.transactions.values import TopicPartition
from broker_layer.transactions.verification import VerificationGuards

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_a_marker_voids_earlier_confirmations() -> None:
    guards = VerificationGuards()
    first, second = guards.begin(A0, 7), guards.begin(A0, 7)
    guards.marker_written(A0, 7)
    third = guards.begin(A0, 7)
    assert [confirmation.holds() for confirmation in (first, second, third)] == [False, False, True]
    for confirmation in (first, second, third):
        confirmation.release()
    assert not guards._live


def test_markers_of_other_producers_change_nothing() -> None:
    guards = VerificationGuards()
    with guards.begin(A0, 7) as confirmation:
        guards.marker_written(A1, 7)
        guards.marker_written(A0, 8)
        assert confirmation.holds()
    assert not confirmation.holds()
    assert not guards._live
