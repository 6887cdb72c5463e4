"""Brings one member of a KIP-848 group a step nearer to its target.

Leaves what the target is to the assignors, and who owns what to `consumer_group`.

Invariants: a member is given a partition only when nobody owns it; what a member owned it owns
until it says that it gave it up; its epoch moves on only when it has nothing left to give up.
Source: KIP-848, "Member assignment: reconciliation".
"""

from collections.abc import Callable
from dataclasses import replace

from broker_layer.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partition,
    Partitions,
    sorted_partitions,
)


def reconciled(
    member: ConsumerMember,
    *,
    assignment_epoch: int,
    is_owned: Callable[[Partition], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    """Return the member's next state, or the member as it is.

    `owned` is what the member says it owns, None when it does not say.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == assignment_epoch:
            return member
        case MemberState.UNREVOKED if _still_owns(owned, member.revoking):
            return member
        case _:
            return _next(member, assignment_epoch, is_owned, owned)


def _next(
    member: ConsumerMember,
    assignment_epoch: int,
    is_owned: Callable[[Partition], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    target = dict.fromkeys(member.target)
    kept = tuple(each for each in member.assigned if each in target)
    revoking = tuple(each for each in member.assigned if each not in target)
    if revoking and _still_owns(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    missing = [each for each in member.target if each not in dict.fromkeys(kept)]
    free = [each for each in missing if not is_owned(each)]
    is_waiting = len(free) < len(missing)
    return replace(
        member,
        state=MemberState.UNRELEASED if is_waiting else MemberState.STABLE,
        previous_epoch=member.epoch if assignment_epoch != member.epoch else member.previous_epoch,
        epoch=assignment_epoch,
        assigned=sorted_partitions([*kept, *free]),
        revoking=NO_PARTITIONS,
    )


def _still_owns(owned: Partitions | None, revoking: Partitions) -> bool:
    """Whether a member has still to give something up; silence does not say that it has not."""
    return owned is None or any(each in dict.fromkeys(revoking) for each in owned)
