"""Tests of the follower of a node's children: callbacks that fail."""

import asyncio
from random import Random
from typing import Any

import pytest

from metadata.store.child_values import ChildValues
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from tests.until import until

PARENT = "/bookies"


@pytest.mark.parametrize("failing", ["on_value", "on_gone"])
async def test_a_callback_that_raises_is_reported_and_the_values_are_followed_further(
    failing: str,
) -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    values: dict[str, bytes] = {}
    reported: list[object] = []

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reported.append(context["exception"])

    asyncio.get_running_loop().set_exception_handler(report)

    def on_value(name: str, value: bytes) -> None:
        values[name] = value
        if failing == "on_value" and name == "bad":
            raise LookupError(name)

    def on_gone(name: str) -> None:
        del values[name]
        if failing == "on_gone" and name == "bad":
            raise LookupError(name)

    for name in ("bad", "good"):
        await store.create(f"{PARENT}/{name}", b"1")
    followed = ChildValues(store, PARENT, Random(1), on_value=on_value, on_gone=on_gone)
    await followed.start()
    for name in ("bad", "good"):
        version = (await store.get(f"{PARENT}/{name}")).version
        await store.compare_and_set(f"{PARENT}/{name}", b"2", version)
    await until(lambda: values == {"bad": b"2", "good": b"2"})
    version = (await store.get(f"{PARENT}/bad")).version
    await store.delete(f"{PARENT}/bad", version)
    await until(lambda: "bad" not in values)
    await store.create(f"{PARENT}/late", b"1")
    await until(lambda: values == {"good": b"2", "late": b"1"})

    assert reported
    assert all(isinstance(each, LookupError) for each in reported)
    await followed.aclose()
    await store.aclose()
