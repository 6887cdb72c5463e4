"""Differential cases: offset look-ups, ends of epochs, and deleted records."""

from collections.abc import Mapping
from typing import Final

from tests.differential.batches import FIRST_TIMESTAMP_MS, Batch
from tests.differential.fetch_cases import fetch_values
from tests.differential.run import FETCH, LIST_OFFSETS, Run, produce, store
from tests.differential.wire import Tree

LATER_MS: Final = FIRST_TIMESTAMP_MS + 10_000
EPOCHS: Final = ("OffsetForLeaderEpoch", 23)
DELETE: Final = ("DeleteRecords", 21)
FAR_EPOCH: Final = 1_000_000


def list_values(
    topic: str, timestamp: int, *, partition: int = 0, epoch: int = -1, isolation: int = 0
) -> Mapping[str, Tree]:
    """Return a ListOffsets request for one partition."""
    part: Mapping[str, Tree] = {
        "partition_index": partition,
        "current_leader_epoch": epoch,
        "timestamp": timestamp,
    }
    topics: Tree = [{"name": topic, "partitions": [part]}]
    return {"replica_id": -1, "isolation_level": isolation, "topics": topics, "timeout_ms": 10000}


async def looking_up(run: Run) -> None:
    """ListOffsets with every special timestamp, and by time."""
    topic = await run.topic("offsets")
    empty = await run.topic("no-offsets")
    await store(run, topic, Batch(), Batch(first_timestamp_ms=LATER_MS), Batch())

    async def look(name: str, timestamp: int, version: int = 8, **options: int) -> None:
        values = list_values(topic, timestamp, **options)
        await run.ask(f"offsets/{name}", LIST_OFFSETS, version, values)

    await look("latest", -1)
    await look("earliest", -2)
    await look("greatest timestamp", -3)
    await look("earliest local", -4)
    await look("latest tiered", -5, version=9)
    await look("unknown special timestamp", -7)
    await look("greatest timestamp, too old a version", -3, version=6)
    await look("before all", 1)
    await look("first record's time", FIRST_TIMESTAMP_MS)
    await look("second record's time", FIRST_TIMESTAMP_MS + 1)
    await look("between the batches", FIRST_TIMESTAMP_MS + 50)
    await look("inside the later batch", LATER_MS + 1)
    await look("last record's time", LATER_MS + 2)
    await look("after all", LATER_MS + 3)
    await look("latest, committed only", -1, isolation=1)
    await look("unknown partition", -1, partition=4)
    await look("leader epoch ahead", -1, epoch=FAR_EPOCH)
    await look("unknown isolation", -1, isolation=7)
    for name, timestamp in {"latest": -1, "earliest": -2, "greatest": -3, "by time": 1}.items():
        values = list_values(empty, timestamp)
        await run.ask(f"offsets/empty partition, {name}", LIST_OFFSETS, 8, values)
    absent = list_values(run.name("absent"), -1)
    await run.ask("offsets/unknown topic", LIST_OFFSETS, 8, absent)
    for version in range(1, 11):
        values = list_values(topic, FIRST_TIMESTAMP_MS)
        await run.ask(f"version/ListOffsets {version}", LIST_OFFSETS, version, values)


async def epochs(run: Run) -> None:
    """OffsetForLeaderEpoch; the first epoch of a new topic is the broker's choice."""
    topic = await run.topic("epochs")
    await store(run, topic, Batch())

    async def end(name: str, epoch: int, version: int = 4, **options: int) -> None:
        part: Mapping[str, Tree] = {"partition": 0, "leader_epoch": epoch, **options}
        topics: Tree = [{"topic": topic, "partitions": [part]}]
        values: Mapping[str, Tree] = {"replica_id": -1, "topics": topics}
        await run.ask(f"epoch/{name}", EPOCHS, version, values)

    now = await run.leader_epoch(topic)
    await end("of the leader", now)
    await end("of the leader, which is named", now, current_leader_epoch=now)
    await end("far ahead", FAR_EPOCH)
    await end("undefined", -1)
    await end("negative", -2)
    await end("unknown partition", 0, partition=5)
    await end("current epoch ahead", 0, current_leader_epoch=FAR_EPOCH)
    for version in range(2, 5):
        await end(f"version {version}", FAR_EPOCH, version)


async def deleting(run: Run) -> None:
    """DeleteRecords, and its visible effects."""
    topic = await run.topic("delete-records")
    await store(run, topic, Batch(), Batch(), Batch())

    async def delete(name: str, offset: int, version: int = 2, of: str = "", part: int = 0) -> None:
        parts: Tree = [{"partition_index": part, "offset": offset}]
        topics: Tree = [{"name": of or topic, "partitions": parts}]
        values: Mapping[str, Tree] = {"topics": topics, "timeout_ms": 10000}
        await run.ask(f"delete records/{name}", DELETE, version, values)

    await delete("beyond the end", 100)
    await delete("negative", -2)
    await delete("unknown topic", 1, of=run.name("absent"))
    await delete("unknown partition", 1, part=6)
    await delete("inside a batch", 4)
    await run.note_end("delete records/after inside a batch", topic)
    for offset in (0, 3, 4):
        values = fetch_values([(topic, 0, offset)])
        await run.ask(f"delete records/fetch {offset}", FETCH, 12, values)
    by_time = list_values(topic, FIRST_TIMESTAMP_MS)
    await run.ask("delete records/by time", LIST_OFFSETS, 8, by_time)
    await delete("below the start", 2)
    await delete("to where it starts", 4)
    for version in (0, 1):
        await delete(f"version {version}", 5 + version, version)
    await delete("all", -1)
    await run.note_end("delete records/after all", topic)
    await produce(run, "delete records/append after all", topic, Batch())
    compacted = await run.topic("delete-compacted", cleanup_policy="compact")
    await store(run, compacted, Batch(keys=(b"a", b"b", b"c")))
    await delete("of a compacted topic", 1, of=compacted)


CASES: Final = (looking_up, epochs, deleting)
