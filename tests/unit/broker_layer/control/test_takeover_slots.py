"""Slow takeovers delay quick ones only for a limited time."""

import asyncio
from dataclasses import replace

import pytest

from broker_layer.control.assigned_partition import TakeOverSlots
from ledger_client.info import LedgerInfo
from metadata.topics.partition_store import PartitionKey
from tests.support.broker_layer.control_setting import CONFIG, Setting
from tests.support.broker_layer.log_setting import append, batch
from tests.until import until


async def test_a_slow_recovery_does_not_keep_its_slot(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    await one.create("slow")
    await one.create("quick")
    log = await one.log("slow")
    await append(log, batch(b"a"))
    record, _ = await one.partitions.get(PartitionKey(log.key.topic_id, 0))
    await append(await one.log("quick"), batch(b"b"))
    config = replace(CONFIG, take_overs_at_once=1, take_over_slot_s_max=0.05)
    two = await setting.broker(2, config)
    recover, may_continue = two.client.recover_ledger, asyncio.Event()

    async def slow(ledger_id: int) -> LedgerInfo:
        if ledger_id == record.segments[0].ledger_id:
            await may_continue.wait()
        return await recover(ledger_id)

    monkeypatch.setattr(two.client, "recover_ledger", slow)
    await setting.kill(one)
    await two.log("quick")
    assert not two.leads("slow")
    may_continue.set()
    await two.log("slow")


async def test_a_slot_is_released_once() -> None:
    short, long = TakeOverSlots(1, 0.01), TakeOverSlots(1, 600.0)
    may_continue = asyncio.Event()
    entered: list[TakeOverSlots] = []

    async def hold(slots: TakeOverSlots) -> None:
        async with slots.taken():
            entered.append(slots)
            await may_continue.wait()

    holding = [asyncio.ensure_future(hold(over_slots)) for over_slots in (short, short, long, long)]
    await until(lambda: len(entered) == 3)
    assert entered.count(long) == 1
    may_continue.set()
    await asyncio.gather(*holding)
    may_continue.clear()
    holding = [asyncio.ensure_future(hold(long)) for _ in range(2)]
    await until(lambda: entered.count(long) == 3)
    await asyncio.sleep(0)
    assert entered.count(long) == 3, "two were given back, and there is still one"
    may_continue.set()
    await asyncio.gather(*holding)
