"""Steps of a KIP-848 member towards its target."""

from broker_layer.groups.consumer_group import reconciled
from broker_layer.groups.values import (
    ConsumerMember,
    MemberState,
    Partition,
    Partitions,
)
from quire.server.overriding import override

KEPT: Partition = (b"a", 0)
OTHER: Partition = (b"a", 1)


def step(
    member: ConsumerMember,
    *,
    owned: Partitions | None = None,
    taken: Partitions = (),
    assignment_epoch: int = 5,
) -> ConsumerMember:
    """Return the member's next state, while others own `taken`."""
    owners = (*taken, *member.assigned, *member.revoking)
    return reconciled(
        member, assignment_epoch=assignment_epoch, is_owned=owners.__contains__, owned=owned
    )


def test_a_member_revokes_until_it_reports_that_it_has() -> None:
    """A heartbeat that reports nothing does not say that it owns nothing."""
    waiting = ConsumerMember(
        "m",
        epoch=4,
        state=MemberState.UNREVOKED,
        assigned=(KEPT,),
        revoking=(OTHER,),
        target=(KEPT,),
    )
    for owned in (None, (OTHER,), (KEPT, OTHER)):
        assert step(waiting, owned=owned) == waiting
    done = step(waiting, owned=(KEPT,))
    assert (done.state, done.epoch, done.previous_epoch) == (MemberState.STABLE, 5, 4)
    assert (done.assigned, done.revoking) == ((KEPT,), ())


def test_a_member_with_nothing_to_revoke_advances_without_a_report() -> None:
    done = step(ConsumerMember("m", epoch=4, assigned=(KEPT,), target=(KEPT,)), owned=None)
    assert (done.state, done.epoch, done.assigned) == (MemberState.STABLE, 5, (KEPT,))


def test_a_member_that_no_longer_owns_what_it_must_revoke_advances_at_once() -> None:
    member = ConsumerMember("m", epoch=4, assigned=(KEPT, OTHER), target=(KEPT,))
    done = step(member, owned=(KEPT,))
    assert (done.state, done.epoch) == (MemberState.STABLE, 5)
    assert (done.assigned, done.revoking) == ((KEPT,), ())


def test_a_member_that_owns_what_it_must_revoke_stays_in_its_epoch() -> None:
    member = ConsumerMember("m", epoch=4, assigned=(KEPT, OTHER), target=(KEPT,))
    for owned in (None, (OTHER,), (KEPT, OTHER)):
        waiting = step(member, owned=owned)
        assert (waiting.state, waiting.epoch) == (MemberState.UNREVOKED, 4)
        assert (waiting.assigned, waiting.revoking) == ((KEPT,), (OTHER,))


def test_a_member_waits_for_partitions_of_others_in_the_new_epoch() -> None:
    member = ConsumerMember("m", epoch=4, previous_epoch=3, target=(KEPT, OTHER))
    waiting = step(member, owned=(), taken=(OTHER,))
    assert (waiting.state, waiting.assigned) == (MemberState.UNRELEASED, (KEPT,))
    assert (waiting.epoch, waiting.previous_epoch) == (5, 4)


def test_a_member_keeps_its_previous_epoch_while_its_epoch_stays() -> None:
    member = ConsumerMember(
        "m", epoch=5, previous_epoch=4, state=MemberState.UNRELEASED, target=(KEPT,)
    )
    done = step(member, owned=())
    assert (done.state, done.assigned) == (MemberState.STABLE, (KEPT,))
    assert (done.epoch, done.previous_epoch) == (5, 4)


def test_a_stable_member_of_the_current_epoch_does_not_change() -> None:
    stable = ConsumerMember("m", epoch=5, previous_epoch=4, assigned=(KEPT,), target=(KEPT,))
    for owned in (None, (), (KEPT,)):
        assert step(stable, owned=owned) == stable


class CountedPartition(tuple[bytes, int]):
    """A partition that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    @override
    def __hash__(self) -> int:
        CountedPartition.lookups += 1
        return super().__hash__()


def test_a_step_looks_up_each_partition_a_few_times() -> None:
    """A member may have thousands of partitions."""
    count = 200
    many = tuple(CountedPartition((b"a", number)) for number in range(count))
    half = many[: count // 2]
    CountedPartition.lookups = 0
    member = ConsumerMember("m", epoch=4, assigned=many, target=half)
    done = reconciled(
        member, assignment_epoch=5, is_owned=lambda partition: partition in many, owned=half
    )
    assert (done.epoch, done.assigned) == (5, half)
    assert CountedPartition.lookups < 10 * count
