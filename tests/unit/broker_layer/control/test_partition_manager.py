"""Tests of the epochs that a broker requests for its partitions."""

import asyncio
from collections.abc import Mapping

import pytest

from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicChange
from tests.support.broker_layer.control_setting import Setting
from tests.support.broker_layer.log_setting import append, batch
from tests.until import until


async def test_epoch_used_during_another_request_is_replaced(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")
    change_many = one.topics.change_many
    is_stored, may_continue = asyncio.Event(), asyncio.Event()

    async def slow(changes: Mapping[str, TopicChange]) -> dict[str, TopicRecord]:
        """Wait for other topics after this one was stored."""
        found = await change_many(changes)
        is_stored.set()
        await may_continue.wait()
        return found

    monkeypatch.setattr(one.topics, "change_many", slow)
    held = one.manager._assigned["orders"][0]
    held.fail("it failed")
    await is_stored.wait()
    await until(lambda: one.leads("orders") and held.status.epoch > log.leader_epoch)
    between = one.manager.log_of("orders", 0).leader_epoch
    held.fail("it failed again")
    await until(lambda: held._task is None or held._task.done())
    may_continue.set()
    await until(lambda: one.leads("orders"))
    after = one.manager.log_of("orders", 0)
    assert after.leader_epoch > between
    await append(after, batch(b"one"))
