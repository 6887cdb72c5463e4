"""Reconciliation: one step of a KIP-848 member towards its target.

Leaves the target to the assignors, and the table of owners to `consumer_group`.

Invariants: a member gets a partition only when no member owns it. A member owns a partition until
it reports that it no longer does. Its epoch advances only when it has nothing left to revoke.
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
    """Return the member's next state, or the unchanged member.

    `owned` are the partitions that the member reports to own; None if it reports none.
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
    held = dict.fromkeys(kept)
    missing = [each for each in member.target if each not in held]
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
    """Return whether a member still owns one of `revoking`; assume so if it reports nothing."""
    sought = dict.fromkeys(revoking)
    return owned is None or any(each in sought for each in owned)
