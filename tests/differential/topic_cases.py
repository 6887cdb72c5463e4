"""Differential cases: creating, growing, deleting and describing topics."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.fetch_cases import UNKNOWN_ID
from tests.differential.run import METADATA, Run
from tests.differential.wire import Tree

CREATE: Final = ("CreateTopics", 19)
DELETE: Final = ("DeleteTopics", 20)
GROW: Final = ("CreatePartitions", 37)
ELECT: Final = ("ElectLeaders", 43)
DESCRIBE_CLUSTER: Final = ("DescribeCluster", 60)
DESCRIBE_PARTITIONS: Final = ("DescribeTopicPartitions", 75)
TIMEOUT_MS: Final = 20_000
NAME_CHARACTERS_MAX: Final = 249


def new_topic(
    name: str,
    partitions: int = 1,
    replication: int = -1,
    *,
    configs: Mapping[str, str | None] | None = None,
    assignments: Sequence[Mapping[str, Tree]] = (),
) -> Mapping[str, Tree]:
    """Return one topic of a CreateTopics request."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": list(assignments),
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }


def create_values(*topics: Mapping[str, Tree], validate_only: bool = False) -> Mapping[str, Tree]:
    """Return a CreateTopics request."""
    return {"topics": list(topics), "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}


async def creating(run: Run) -> None:
    """CreateTopics, valid and invalid."""
    first = run.name("created")

    async def create(name: str, *topics: Mapping[str, Tree], validate_only: bool = False) -> None:
        values = create_values(*topics, validate_only=validate_only)
        await run.ask(f"create/{name}", CREATE, 7, values, without=["configs"])

    await create("first", new_topic(first, 3))
    await create("exists", new_topic(first, 3))
    names = {
        "empty name": "",
        "dot": ".",
        "two dots": "..",
        "space": "a b",
        "slash": "a/b",
        "not ascii": "\u00e4",
        "too long": run.prefix + "x" * (NAME_CHARACTERS_MAX + 1 - len(run.prefix)),
    }
    for name, wrong in names.items():
        await create(name, new_topic(wrong))
    longest = run.prefix + "x" * (NAME_CHARACTERS_MAX - len(run.prefix))
    await create("longest name", new_topic(longest), validate_only=True)
    await create("default count", new_topic(run.name("defaults"), -1))
    for count in (0, -2):
        await create(f"{count} partitions", new_topic(run.name("wrong"), count))
    for factor in (0, -2, 100):
        await create(f"replication {factor}", new_topic(run.name("wrong"), 1, factor))
    twice = run.name("twice")
    await create("named twice", new_topic(twice), new_topic(twice))
    await create("validate only", new_topic(run.name("valid")), validate_only=True)
    await create("validate only, exists", new_topic(first), validate_only=True)
    values: Mapping[str, Tree] = {
        "topics": [{"name": run.name("valid")}],
        "allow_auto_topic_creation": False,
    }
    await run.ask("create/after validate only", METADATA, 9, values)
    await create("dotted", new_topic(run.name("a.b")))
    await create("collides with the dotted", new_topic(run.name("a_b")))
    await create(
        "right and wrong", new_topic(run.name("right")), new_topic("a b"), new_topic(first)
    )
    await create("nothing")
    gap: Sequence[Mapping[str, Tree]] = [{"partition_index": 1, "broker_ids": [999_999]}]
    await create("assigned to none", new_topic(run.name("wrong"), -1, assignments=gap))
    await create("assignments and counts", new_topic(run.name("wrong"), 2, 1, assignments=gap))


async def creating_with_configs(run: Run) -> None:
    """CreateTopics with settings."""
    settings: Mapping[str, Mapping[str, str | None]] = {
        "known setting": {"retention.ms": "86400000"},
        "unknown setting": {"no.such.setting": "1"},
        "no number": {"retention.ms": "much"},
        "out of range": {"max.message.bytes": "-5"},
        "null value": {"retention.ms": None},
        "unknown policy": {"cleanup.policy": "burn"},
        "both policies": {"cleanup.policy": "compact,delete"},
        "unknown compression": {"compression.type": "zip"},
        "unknown timestamp type": {"message.timestamp.type": "Now"},
        "min in sync 0": {"min.insync.replicas": "0"},
        "not a boolean": {"unclean.leader.election.enable": "perhaps"},
    }
    for number, (name, configs) in enumerate(settings.items()):
        topic = new_topic(run.name(f"configured-{number}"), configs=configs)
        await run.ask(f"create/{name}", CREATE, 5, create_values(topic), without=["configs"])


async def growing(run: Run) -> None:
    """CreatePartitions, valid and invalid."""
    topic = await run.topic("grown", partitions=2)

    async def grow(name: str, *parts: tuple[str, int], validate_only: bool = False) -> None:
        topics: Tree = [{"name": t, "count": n, "assignments": None} for t, n in parts]
        values: Mapping[str, Tree] = {
            "topics": topics,
            "timeout_ms": TIMEOUT_MS,
            "validate_only": validate_only,
        }
        await run.ask(f"grow/{name}", GROW, 2, values)

    await grow("same count", (topic, 2))
    await grow("fewer", (topic, 1))
    await grow("none", (topic, 0))
    await grow("negative", (topic, -1))
    await grow("unknown topic", (run.name("absent"), 3))
    await grow("validate only", (topic, 3), validate_only=True)
    await grow("named twice", (topic, 3), (topic, 4))
    await grow("right", (topic, 4))
    await run.wait_ready(topic, 4)
    values: Mapping[str, Tree] = {"topics": [{"name": topic}]}
    await run.ask("grow/after", METADATA, 9, values)


async def deleting(run: Run) -> None:
    """DeleteTopics, valid and invalid."""
    named, identified = await run.topic("deleted"), await run.topic("deleted-by-id")
    identity = await run.topic_id(identified)

    async def delete(name: str, *topics: Mapping[str, Tree]) -> None:
        values: Mapping[str, Tree] = {"topics": list(topics), "timeout_ms": TIMEOUT_MS}
        await run.ask(f"delete/{name}", DELETE, 6, values)

    await delete("unknown", {"name": run.name("absent")})
    await delete("unknown id", {"name": None, "topic_id": UNKNOWN_ID})
    await delete("name and id", {"name": named, "topic_id": identity})
    await delete("neither", {"name": None})
    await delete("named twice", {"name": named}, {"name": named})
    await delete("by name", {"name": named})
    await delete("again", {"name": named})
    await delete("by id", {"name": None, "topic_id": identity})
    await run.topic("deleted")
    await run.note_end("delete/created again", named)
    for version in range(1, 6):
        topic = await run.topic(f"deleted-{version}")
        values: Mapping[str, Tree] = {"topic_names": [topic], "timeout_ms": TIMEOUT_MS}
        await run.ask(f"version/DeleteTopics {version}", DELETE, version, values)


async def describing(run: Run) -> None:
    """Metadata and related requests."""
    topic = await run.topic("described", partitions=2)
    identity = await run.topic_id(topic)

    async def describe(name: str, version: int, *topics: Mapping[str, Tree]) -> None:
        values: Mapping[str, Tree] = {"topics": list(topics), "allow_auto_topic_creation": False}
        await run.ask(f"metadata/{name}", METADATA, version, values, is_patient=False)

    for version in range(14):
        await describe(f"version {version}", version, {"name": topic})
    await describe("unknown topic", 9, {"name": run.name("absent")})
    await describe("invalid name", 9, {"name": "a b"})
    await describe("by id", 12, {"name": None, "topic_id": identity})
    await describe("unknown id", 12, {"name": None, "topic_id": UNKNOWN_ID})
    await describe("named twice", 9, {"name": topic}, {"name": topic})
    await describe("no topics", 9)
    await describe("null name", 9, {"name": None})
    parts: Mapping[str, Tree] = {"topics": [{"name": topic}], "response_partition_limit": 1}
    await run.ask("partitions/limit of one", DESCRIBE_PARTITIONS, 0, parts)
    for version in range(3):
        await run.ask(f"version/DescribeCluster {version}", DESCRIBE_CLUSTER, version, {})
    elections: Tree = [{"topic": topic, "partitions": [0]}]
    for version in range(3):
        values: Mapping[str, Tree] = {"election_type": 0, "topic_partitions": elections}
        await run.ask(f"version/ElectLeaders {version}", ELECT, version, values)
    absent: Tree = [{"topic": run.name("absent"), "partitions": [0]}]
    for name, kind in {"preferred": 0, "unclean": 1, "of unknown type": 5}.items():
        values = {"election_type": kind, "topic_partitions": elections}
        await run.ask(f"elect/{name}", ELECT, 2, values)
        values = {"election_type": kind, "topic_partitions": absent}
        await run.ask(f"elect/{name}, unknown topic", ELECT, 2, values)


async def creating_versions(run: Run) -> None:
    """Send a valid request in every version."""
    for version in range(2, 8):
        values = create_values(new_topic(run.name(f"version-{version}"), 2, 1))
        await run.ask(
            f"version/CreateTopics {version}", CREATE, version, values, without=["configs"]
        )
    for version in range(4):
        topics: Tree = [{"name": run.name("version-5"), "count": 3 + version, "assignments": None}]
        grown: Mapping[str, Tree] = {
            "topics": topics,
            "timeout_ms": TIMEOUT_MS,
            "validate_only": False,
        }
        await run.ask(f"version/CreatePartitions {version}", GROW, version, grown)


CASES: Final = (creating, creating_with_configs, growing, deleting, describing, creating_versions)
