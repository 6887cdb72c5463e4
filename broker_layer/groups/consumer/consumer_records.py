"""Records of KIP-848 groups, as fields of the arrays that `records` packs.

Leaves versions and all other kinds to `records`.

Format, from index 1 on:

    kind  record              fields
    16    ConsumerGroupImage  group id, epoch, assignment epoch, topics digest
    17    MemberStored        group id, member id, instance id or nil, rack id or nil, client id,
                              client host, rebalance timeout ms, [topic], pattern, assignor or nil,
                              epoch, previous epoch, state, assigned, revoking, target
    18    MemberRemoved       group id, member id
    19    ConsumerGroupChanged   group id, [[kind, field, ...]] of the kinds above

    assigned, revoking, target   [[topic id, [partition]]]

Invariants: unpacking returns a record or raises GroupRecordError.
"""

from broker_layer.groups.consumer.consumer_values import (
    ConsumerChange,
    ConsumerGroupChanged,
    ConsumerGroupImage,
    ConsumerMember,
    ConsumerRecord,
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


def pack_consumer_record(record: ConsumerRecord) -> list[Packed]:
    """Return the kind and the fields of a record."""
    match record:
        case ConsumerGroupImage(group_id, epoch, assignment_epoch, topics_digest):
            return [16, group_id, epoch, assignment_epoch, topics_digest]
        case MemberStored(group_id, member):
            return [17, group_id, *_packed_member(member)]
        case MemberRemoved(group_id, member_id):
            return [18, group_id, member_id]
        case ConsumerGroupChanged(group_id, changes):
            return [19, group_id, [pack_consumer_record(each) for each in changes]]


def unpack_consumer_record(kind: int, fields: list[Packed]) -> ConsumerRecord:
    """Return the record. Raises GroupRecordError."""
    match kind, fields:
        case 19, [str(group_id), [*changes]]:
            return ConsumerGroupChanged(group_id, tuple(_change(group_id, c) for c in changes))
        case _:
            return _unpack_change(kind, fields)


def _unpack_change(kind: int, fields: list[Packed]) -> ConsumerChange:
    match kind, fields:
        case 16, [str(group_id), int(epoch), int(assignment_epoch), bytes(topics_digest)]:
            return ConsumerGroupImage(group_id, epoch, assignment_epoch, topics_digest)
        case 17, [str(group_id), *member]:
            return MemberStored(group_id, _member(member))
        case 18, [str(group_id), str(member_id)]:
            return MemberRemoved(group_id, member_id)
        case _:
            raise GroupRecordError(f"kind {kind} with {len(fields)} fields")


def _change(group_id: str, packed: Packed) -> ConsumerChange:
    match packed:
        case [int(kind), str(named), *fields] if named == group_id:
            return _unpack_change(kind, [named, *fields])
        case _:
            raise GroupRecordError("not a change of its group")


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
