"""Differential cases: reading batches by offsets, limits, epochs and sessions.

Leaves aborted transactions to `transaction_cases` and look-ups of offsets to `offset_cases`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.answers import number
from tests.differential.batches import Batch
from tests.differential.run import FETCH, Run, store
from tests.differential.wire import Tree

PLENTY: Final = 1_000_000
UNKNOWN_ID: Final = "01234567-0123-4567-8901-0123456789ab"
SESSION_VERSION: Final = 11


def fetch_values(
    topics: Sequence[tuple[Tree, int, int]],
    *,
    wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = PLENTY,
    partition_bytes: int = PLENTY,
    epoch: int = -1,
    read_committed: bool = False,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[Mapping[str, Tree]] = (),
) -> Mapping[str, Tree]:
    """Return a Fetch request for partitions given as (topic, partition, offset)."""
    asked: list[Tree] = []
    for topic, partition, offset in topics:
        part: Mapping[str, Tree] = {
            "partition": partition,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "partition_max_bytes": partition_bytes,
        }
        asked.append({"topic": topic, "partitions": [part]})
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": int(read_committed),
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": asked,
        "forgotten_topics_data": list(forgotten),
        "rack_id": "",
    }


def fetch_by_id(topic_id: Tree, partition: int, offset: int) -> Mapping[str, Tree]:
    """Return a Fetch request that names its topic by id (version 13 and later)."""
    part: Mapping[str, Tree] = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": PLENTY,
    }
    return {
        **fetch_values([]),
        "topics": [{"topic_id": topic_id, "partitions": [part]}],
    }


async def reading(run: Run) -> None:
    """Offsets inside and outside the log, and limits."""
    topic = await run.topic("read", partitions=2)
    await store(run, topic, Batch(), Batch(values=(b"x" * 2000,)), Batch(), Batch(values=(b"z",)))

    async def read(name: str, offset: int, version: int = 12, **options: int) -> Tree:
        values = fetch_values([(topic, 0, offset)], **options)  # type: ignore[arg-type]
        return await run.ask(f"fetch/{name}", FETCH, version, values)

    await read("from the start", 0)
    await read("inside a batch", 1)
    await read("last record", 7)
    await read("at the end", 8)
    await read("beyond the end", 9)
    await read("far beyond the end", 10**12)
    await read("negative offset", -1)
    await read("at the end, waiting", 8, wait_ms=300, min_bytes=1)
    await read("one byte gives a batch", 0, max_bytes=1, partition_bytes=1)
    await read("one byte gives a large batch", 3, max_bytes=1, partition_bytes=1)
    await read("partition limit", 0, partition_bytes=300)
    await read("nothing allowed", 0, max_bytes=0, partition_bytes=0)
    await read("the leader's epoch", 0, epoch=await run.leader_epoch(topic))
    await read("leader epoch ahead", 0, epoch=1_000_000)
    await read("committed only", 0, read_committed=True)
    await read("by version 4", 0, version=4)
    two = fetch_values([(topic, 0, 0), (topic, 1, 0)])
    await run.ask("fetch/two partitions", FETCH, 12, two)
    absent = fetch_values([(run.name("absent"), 0, 0)])
    await run.ask("fetch/unknown topic", FETCH, 12, absent)
    wrong = fetch_values([(topic, 7, 0)])
    await run.ask("fetch/unknown partition", FETCH, 12, wrong)
    mixed = fetch_values([(topic, 0, 0), (topic, 1, 5), (run.name("absent"), 0, 0)])
    await run.ask("fetch/right and wrong", FETCH, 12, mixed)
    await run.ask("fetch/nothing asked", FETCH, 12, fetch_values([]))


async def sessions(run: Run) -> None:
    """Incremental fetches (KIP-227)."""
    topic = await run.topic("session", partitions=2)
    await store(run, topic, Batch())
    both = [(topic, 0, 0), (topic, 1, 0)]

    async def read(
        name: str,
        parts: Sequence[tuple[Tree, int, int]],
        session: tuple[int, int],
        forgotten: Sequence[Mapping[str, Tree]] = (),
    ) -> Tree:
        values = fetch_values(parts, session=session, forgotten=forgotten)
        return await run.ask(f"session/{name}", FETCH, SESSION_VERSION, values)

    opened = await read("opened", both, (0, 0))
    identity = number(opened, "session_id")
    await read("unknown", [], (identity ^ 0x5555, 1))
    await read("nothing new", [(topic, 0, 3)], (identity, 1))
    await read("wrong epoch", [], (identity, 9))
    await store(run, topic, Batch())
    await read("what is new", [], (identity, 2))
    await read("moved on", [(topic, 0, 6)], (identity, 3))
    left: Mapping[str, Tree] = {"topic": topic, "partitions": [0]}
    await store(run, topic, Batch())
    await read("forgotten", [], (identity, 4), [left])
    await read("closed", both, (identity, -1))
    await read("after it was closed", [], (identity, 5))


async def versions(run: Run) -> None:
    """Send a valid request in every version."""
    topic = await run.topic("fetch-versions")
    await store(run, topic, Batch())
    identity = await run.topic_id(topic)
    for version in range(4, 13):
        values = fetch_values([(topic, 0, 0)])
        await run.ask(f"version/Fetch {version}", FETCH, version, values)
    for version in range(13, 19):
        values = fetch_by_id(identity, 0, 0)
        await run.ask(f"version/Fetch {version}", FETCH, version, values)
    await run.ask("fetch/unknown id", FETCH, 13, fetch_by_id(UNKNOWN_ID, 0, 0), is_patient=False)
    await run.ask("fetch/by id, unknown partition", FETCH, 13, fetch_by_id(identity, 5, 0))


CASES: Final = (reading, sessions, versions)
