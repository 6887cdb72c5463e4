"""Order in which a reader tries the replicas of an entry."""

from ledger_client.protocol.read import PENALTY_MAX, ReplicaOrder
from metadata.ids import BookieId

A, B, C = REPLICAS = tuple(map(BookieId, "abc"))


def test_readers_start_at_different_replicas() -> None:
    starts = [ReplicaOrder(rotation).order(REPLICAS) for rotation in range(4)]
    assert starts == [(A, B, C), (B, C, A), (C, A, B), (A, B, C)]


def test_the_last_good_replica_comes_first_and_the_worst_last() -> None:
    order = ReplicaOrder(0)
    order.note_good(C)
    assert order.order(REPLICAS) == (C, A, B)
    order.note_bad(A)
    assert order.order(REPLICAS) == (C, B, A)
    order.note_bad(B)
    order.note_bad(B)
    assert order.order(REPLICAS) == (C, A, B)
    order.note_bad(A)
    order.note_bad(A)
    assert order.order(REPLICAS) == (C, B, A)


def test_a_failure_of_another_replica_does_not_change_the_preferred_one() -> None:
    order = ReplicaOrder(0)
    order.note_good(B)
    order.note_bad(C)
    assert order.order(REPLICAS) == (B, A, C)


def test_a_replica_that_failed_is_not_preferred_any_more() -> None:
    order = ReplicaOrder(0)
    order.note_good(C)
    for replica in REPLICAS:
        order.note_bad(replica)
    assert order.order(REPLICAS) == (A, B, C)


def test_one_good_answer_makes_up_for_all_failures() -> None:
    order = ReplicaOrder(0)
    for _ in range(PENALTY_MAX + 3):
        order.note_bad(A)
        order.note_bad(B)
    order.note_good(B)
    assert order.order(REPLICAS) == (B, C, A)


def test_penalties_are_limited() -> None:
    """A replica that failed long ago, and one that failed often, are tried alike."""
    order = ReplicaOrder(0)
    for _ in range(PENALTY_MAX + 5):
        order.note_bad(A)
    for _ in range(PENALTY_MAX):
        order.note_bad(B)
    assert order.order(REPLICAS) == (C, A, B)
    order.note_good(C)
    for _ in range(PENALTY_MAX - 1):
        order.note_bad(C)
    assert order.order((B, C)) == (C, B)
