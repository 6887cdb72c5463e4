"""Changes of a KIP-848 group, as fields of the array that `records` packs.

Leaves the record of a group, which has changes that belong together, to `records`.

Format of a change:

    index 0  change              fields from index 1 on
    1        ConsumerGroupImage  epoch, assignment epoch, topics digest
    2        MemberStored        member id, instance id or nil, rack id or nil, client id, client
                                 host, rebalance timeout ms, [topic], pattern, assignor or nil,
                                 epoch, previous epoch, state, assigned, revoking, target
    3        MemberRemoved       member id

    assigned, revoking, target   [[topic id, [partition]]]

Invariants: unpacking returns a change or raises GroupRecordError.
"""

from broker_layer.groups.consumer.consumer_values import (
    ConsumerChange,
    ConsumerGroupImage,
    ConsumerMember,
    MemberRemoved,
    MemberState,
    MemberStored,
    Partition,
    Partitions,
    by_topic,
    sorted_partitions,
)

Packed = int | str | bytes | bool | None | list["Packed"]


class GroupRecordError(ValueError):
    """A record of a coordinator's log is not readable."""


def pack_change(change: ConsumerChange) -> list[Packed]:
    """Return the number and the fields of a change."""
    match change:
        case ConsumerGroupImage(epoch, assignment_epoch, topics_digest):
            return [1, epoch, assignment_epoch, topics_digest]
        case MemberStored(member):
            return [2, *_packed_member(member)]
        case MemberRemoved(member_id):
            return [3, member_id]


def unpack_change(packed: Packed) -> ConsumerChange:
    """Return the change. Raises GroupRecordError."""
    match packed:
        case [1, int(epoch), int(assignment_epoch), bytes(topics_digest)]:
            return ConsumerGroupImage(epoch, assignment_epoch, topics_digest)
        case [2, *member]:
            return MemberStored(_member(member))
        case [3, str(member_id)]:
            return MemberRemoved(member_id)
        case _:
            raise GroupRecordError("not a change of a group")


def _packed_member(member: ConsumerMember) -> list[Packed]:
    return [
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        list(member.topics),
        member.pattern,
        member.assignor,
        member.epoch,
        member.previous_epoch,
        int(member.state),
        _packed_partitions(member.assigned),
        _packed_partitions(member.revoking),
        _packed_partitions(member.target),
    ]


def _packed_partitions(partitions: Partitions) -> list[Packed]:
    return [[topic_id, list(each)] for topic_id, each in by_topic(partitions).items()]


def _member(fields: list[Packed]) -> ConsumerMember:
    match fields:
        case [
            str(member_id),
            (str() | None) as instance_id,
            (str() | None) as rack_id,
            str(client_id),
            str(client_host),
            int(rebalance_timeout_ms),
            [*topics],
            str(pattern),
            (str() | None) as assignor,
            int(epoch),
            int(previous_epoch),
            (1 | 2 | 3) as state,
            assigned,
            revoking,
            target,
        ]:
            return ConsumerMember(
                member_id,
                instance_id,
                rack_id,
                client_id,
                client_host,
                rebalance_timeout_ms,
                tuple(map(_text, topics)),
                pattern,
                assignor,
                epoch,
                previous_epoch,
                MemberState(state),
                _partitions(assigned),
                _partitions(revoking),
                _partitions(target),
            )
        case _:
            raise GroupRecordError("not a member of a consumer group")


def _text(packed: Packed) -> str:
    if not isinstance(packed, str):
        raise GroupRecordError("not a topic")
    return packed


def _partitions(packed: Packed) -> Partitions:
    found: list[Partition] = []
    for topic in packed if isinstance(packed, list) else [None]:
        match topic:
            case [bytes(topic_id), [*partitions]]:
                found += [(topic_id, each) for each in partitions if isinstance(each, int)]
            case _:
                raise GroupRecordError("not partitions")
    return sorted_partitions(found)
