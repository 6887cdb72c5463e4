"""A partition with many offsets: all are loaded, and the time is reported."""

import time
from collections.abc import Callable

from broker_layer.groups.offset_table import NO_EXPIRY, CommittedOffset, PlacedOffset
from broker_layer.groups.records import OffsetsCommitted, encode
from broker_layer.groups.shard import GroupShard
from broker_layer.groups.values import GroupsConfig
from tests.support.broker_layer.group_world import MemoryTopics

OFFSET_COUNT = 100_000
GROUP_COUNT = 500


def test_a_hundred_thousand_offsets_are_loaded(
    record_property: Callable[[str, object], None],
) -> None:
    shard = GroupShard(GroupsConfig(), MemoryTopics({}))
    for number in range(OFFSET_COUNT):
        committed = CommittedOffset(number, 1, "", 0, NO_EXPIRY, b"i" * 16, number)
        placed = PlacedOffset("orders", number // GROUP_COUNT, committed)
        shard.apply(OffsetsCommitted(f"g{number % GROUP_COUNT}", (placed,)))
    commits = [
        encode(OffsetsCommitted(group_id, (placed,)))
        for group_id, offsets in shard.offsets.groups.items()
        for placed in offsets.all()
    ]
    for name, records in (("snapshot", list(shard.snapshot())), ("commits", commits)):
        loaded = GroupShard(GroupsConfig(), MemoryTopics({}))
        started = time.process_time()
        for record in records:
            loaded.load(record)
        record_property(f"{name}_load_s", time.process_time() - started)
        assert loaded.offsets.groups == shard.offsets.groups
