"""Differential cases: settings of topics and brokers.

Each broker has other settings; only a few that every client uses are requested.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.run import Run
from tests.differential.wire import Tree

DESCRIBE: Final = ("DescribeConfigs", 32)
ALTER: Final = ("AlterConfigs", 33)
CHANGE: Final = ("IncrementalAlterConfigs", 44)
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
ASKED: Final = ("retention.ms", "cleanup.policy", "max.message.bytes")


def describe_values(kind: int, name: str, keys: Sequence[str] | None = ASKED) -> Mapping[str, Tree]:
    """Return a DescribeConfigs request for one resource."""
    resource: Mapping[str, Tree] = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) if keys is not None else None,
    }
    return {"resources": [resource], "include_synonyms": False, "include_documentation": False}


def change_values(
    topic: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
) -> Mapping[str, Tree]:
    """Return an IncrementalAlterConfigs request for one resource."""
    configs: Tree = [{"name": n, "config_operation": o, "value": v} for n, o, v in changes]
    resource: Mapping[str, Tree] = {
        "resource_type": kind,
        "resource_name": topic,
        "configs": configs,
    }
    return {"resources": [resource], "validate_only": validate_only}


async def describing(run: Run) -> None:
    """DescribeConfigs."""
    topic = await run.topic("configs", retention_ms="3600000")

    async def describe(name: str, kind: int, resource: str, version: int = 4) -> None:
        values = describe_values(kind, resource)
        await run.ask(f"configs/{name}", DESCRIBE, version, values)

    for version in range(1, 5):
        await describe(f"described in version {version}", TOPIC, topic, version)
    await describe("unknown topic", TOPIC, run.name("absent"))
    await describe("invalid topic name", TOPIC, "a b")
    await describe("empty topic name", TOPIC, "")
    await describe("unknown broker", BROKER, "999999")
    await describe("broker with no number", BROKER, "one")
    await describe("unknown kind of resource", 99, topic)
    nothing = describe_values(TOPIC, topic, ["no.such.setting"])
    await run.ask("configs/setting that is not there", DESCRIBE, 4, nothing)


async def changing(run: Run) -> None:
    """IncrementalAlterConfigs and AlterConfigs."""
    topic = await run.topic("changed")

    async def change(
        name: str, *changes: tuple[str, int, str | None], version: int = 1, of: str = topic
    ) -> None:
        values = change_values(of, *changes)
        await run.ask(f"change/{name}", CHANGE, version, values)

    async def see(name: str) -> None:
        await run.wait_spread()
        await run.ask(f"change/seen after {name}", DESCRIBE, 4, describe_values(TOPIC, topic))

    await change("set", ("retention.ms", SET, "7200000"))
    await see("set")
    await change("set in version 0", ("retention.ms", SET, "7200001"), version=0)
    await change("append", ("cleanup.policy", APPEND, "compact"))
    await change("subtract", ("cleanup.policy", SUBTRACT, "compact"))
    await change("append to what is no list", ("retention.ms", APPEND, "1"))
    await change("unknown setting", ("no.such.setting", SET, "1"))
    await change("delete unknown setting", ("no.such.setting", DELETE, None))
    await change("no number", ("retention.ms", SET, "soon"))
    await change("out of range", ("max.message.bytes", SET, "-1"))
    await change("null value", ("retention.ms", SET, None))
    await change("unknown operation", ("retention.ms", 9, "1"))
    await change("named twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    await change(
        "one right, one wrong", ("retention.ms", SET, "1"), ("max.message.bytes", SET, "x")
    )
    await change("unknown topic", ("retention.ms", SET, "1"), of=run.name("absent"))
    await change("empty topic name", ("retention.ms", SET, "1"), of="")
    await see("wrong changes")
    tried = change_values(topic, ("retention.ms", SET, "5000"), validate_only=True)
    await run.ask("change/validate only", CHANGE, 1, tried)
    await see("validate only")
    await change("delete", ("retention.ms", DELETE, None))
    await see("delete")
    kind = change_values(topic, ("retention.ms", SET, "1"), kind=99)
    await run.ask("change/unknown kind of resource", CHANGE, 1, kind)


async def replacing(run: Run) -> None:
    """AlterConfigs, which replaces all settings."""
    topic = await run.topic("replaced", retention_ms="3600000", max_message_bytes="5000")

    async def replace(name: str, configs: Mapping[str, str | None], version: int = 2) -> None:
        settings: Tree = [{"name": key, "value": value} for key, value in configs.items()]
        resource: Mapping[str, Tree] = {
            "resource_type": TOPIC,
            "resource_name": topic,
            "configs": settings,
        }
        values: Mapping[str, Tree] = {"resources": [resource], "validate_only": False}
        await run.ask(f"replace/{name}", ALTER, version, values)

    for version in range(3):
        await replace(f"in version {version}", {"retention.ms": str(9000 + version)}, version)
    await run.wait_spread()
    await run.ask("replace/seen after", DESCRIBE, 4, describe_values(TOPIC, topic))
    await replace("wrong", {"retention.ms": "x"})
    await replace("unknown", {"no.such.setting": "x"})


CASES: Final = (describing, changing, replacing)
