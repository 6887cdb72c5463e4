"""What concerns many groups lets other work of the loop run meanwhile."""

from collections import Counter

import pytest

from broker_layer import handlers as turns
from broker_layer.groups.offset_table import NO_EXPIRY, CommittedOffset, PlacedOffset
from broker_layer.groups.records import OffsetsCommitted, encode
from broker_layer.handlers import SLICE_ELEMENTS
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.support.broker_layer.group_world import WALL_START_MS, World, open_world
from tests.support.loop_passes import counting_passes

COUNT = 5 * SLICE_ELEMENTS
NAMES = [f"missing-{number}" for number in range(COUNT)]


def _record(number: int) -> bytes:
    committed = CommittedOffset(7, 0, "", WALL_START_MS, NO_EXPIRY, b"", number)
    return encode(OffsetsCommitted(f"g{number}", (PlacedOffset("orders", 0, committed),)))


async def _perform(world: World, work: str) -> int:
    """Perform the work; return the number of groups or names that it concerned."""
    if work == "list":
        listed = await world.call(ListGroupsRequest(), ListGroupsResponse)
        return len(listed.groups)
    if work == "describe":
        asked = ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False)
        described = await world.call(asked, ConsumerGroupDescribeResponse)
        return len(described.groups)
    deletion = DeleteGroupsRequest(groups_names=NAMES)
    deleted = await world.call(deletion, DeleteGroupsResponse)
    codes = [result.error_code for result in deleted.results]
    return codes.count(ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize("work", ["list", "describe", "delete"])
async def test_other_work_runs_meanwhile(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    records = [_record(number) for number in range(COUNT)]
    async with open_world(records=records) as world, counting_passes() as passes:
        assert await _perform(world, work) == COUNT
        assert passes.now >= COUNT // SLICE_ELEMENTS


async def test_other_work_runs_while_offsets_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    records = [_record(number) for number in range(COUNT)]
    async with open_world(records=records) as world, counting_passes() as passes:
        looks, topic_id_of = Counter[int](), world.topics.topic_id_of

        def counted(name: str) -> bytes | None:
            looks[passes.now] += 1
            return topic_id_of(name)

        monkeypatch.setattr(world.topics, "topic_id_of", counted)
        await world.coordinator.expire()
    assert looks.total() >= COUNT
    assert max(looks.values()) < SLICE_ELEMENTS
