"""Which replica a read uses, and what it concludes, for any answers in any order."""

from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.messages import Status
from ledger_client.protocol import read as p
from metadata.ids import BookieId

A, B, C = (BookieId(name) for name in "abc")


def negative(bookie_id: BookieId) -> p.ReplicaAnswered:
    return p.ReplicaAnswered(bookie_id, 0, Status.NO_SUCH_ENTRY, "none")


def found(bookie_id: BookieId, count: int = 5) -> p.ReplicaAnswered:
    return p.ReplicaAnswered(bookie_id, count, Status.OK, "")


def damaged(bookie_id: BookieId) -> p.ReplicaAnswered:
    return p.ReplicaAnswered(bookie_id, 0, Status.UNKNOWN, "digest", is_damaged=True)


def test_one_replica_is_read_and_delivers() -> None:
    read = p.RangeRead((A, B, C))
    assert read.start() == [p.AskReplica(A), p.StartDelay()]
    assert read.handle(found(A)) == [p.Deliver(A)]
    assert read.handle(p.DelayPassed()) == []


def test_a_slow_replica_starts_the_next_and_the_first_answer_wins() -> None:
    read = p.RangeRead((A, B, C))
    read.start()
    assert read.handle(p.DelayPassed()) == [p.AskReplica(B), p.StartDelay()]
    assert read.handle(p.DelayPassed()) == [p.AskReplica(C)]
    assert read.handle(p.DelayPassed()) == []
    assert read.handle(found(C)) == [p.Deliver(C)]
    assert read.handle(found(A)) == []


def test_an_entry_is_missing_if_all_replicas_say_so() -> None:
    read = p.RangeRead((A, B))
    read.start()
    assert read.handle(negative(A)) == [p.AskReplica(B)]
    assert read.handle(negative(B)) == [p.ReportMissing()]


def test_an_unreachable_replica_prevents_the_verdict_missing() -> None:
    read = p.RangeRead((A, B))
    read.start()
    read.handle(p.ReplicaFailed(A, "timeout"))
    assert read.handle(negative(B)) == [p.ReportUnreadable({A: "timeout"}, is_damaged=False)]


def test_damage_at_every_replica_is_reported() -> None:
    read = p.RangeRead((A, B))
    read.start()
    read.handle(damaged(A))
    assert read.handle(damaged(B)) == [
        p.ReportUnreadable({A: "digest", B: "digest"}, is_damaged=True)
    ]


def test_a_wrong_password_ends_the_read() -> None:
    read = p.RangeRead((A, B))
    read.start()
    refused = p.ReplicaAnswered(A, 0, Status.UNAUTHORIZED, "")
    assert read.handle(refused) == [p.ReportUnauthorized(A)]


@given(st.integers(1, 5), st.data())
def test_every_history_ends_in_one_conclusion_that_its_answers_allow(
    count: int, data: st.DataObject
) -> None:
    replicas = tuple(BookieId(f"b{i}") for i in range(count))
    read = p.RangeRead(replicas)
    answers = {b: data.draw(st.sampled_from([found, negative, damaged, None])) for b in replicas}
    waiting: list[BookieId] = []
    asked: list[BookieId] = []
    conclusions: list[p.ReadAction] = []

    def take(actions: list[p.ReadAction]) -> None:
        for action in actions:
            match action:
                case p.AskReplica(bookie_id):
                    waiting.append(bookie_id)
                    asked.append(bookie_id)
                case p.StartDelay():
                    pass
                case _:
                    conclusions.append(action)

    take(read.start())
    while waiting:
        if data.draw(st.booleans()):
            take(read.handle(p.DelayPassed()))
        bookie_id = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        make = answers[bookie_id]
        take(read.handle(make(bookie_id) if make else p.ReplicaFailed(bookie_id, "away")))
    assert len(asked) == len(set(asked))
    assert len(conclusions) == 1
    good = [b for b in replicas if answers[b] is found]
    match conclusions[0]:
        case p.Deliver(bookie_id):
            assert bookie_id in good
        case p.ReportMissing():
            assert all(answer is negative for answer in answers.values())
        case p.ReportUnreadable(reasons, is_damaged):
            assert not good
            assert set(reasons) == {b for b in replicas if answers[b] is not negative}
            assert is_damaged is all(answers[b] is damaged for b in reasons)
        case other:
            raise AssertionError(f"no history of these answers ends in {other}")


def test_the_order_prefers_good_replicas_and_avoids_bad_ones() -> None:
    order = p.ReplicaOrder(rotation=1)
    assert order.order((A, B, C)) == (B, C, A)
    order.note_good(C)
    assert order.order((A, B, C))[0] == C
    order.note_bad(C)
    assert order.order((A, B, C)) == (B, A, C) or order.order((A, B, C))[-1] == C
    order.note_good(C)
    assert order.order((A, B, C))[0] == C
    assert order.order((A,)) == (A,)
