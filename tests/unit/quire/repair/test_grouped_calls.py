"""Calls for many items, some at a time."""

import asyncio

import pytest

from quire.repair.ledger_reads import CALLS_AT_ONCE, call_each


def test_every_item_is_used_and_few_calls_are_under_way() -> None:
    under_way, most, used = 0, 0, list[int]()

    async def call(item: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        used.append(item)

    asyncio.run(call_each(range(2 * CALLS_AT_ONCE + 1), call))
    assert sorted(used) == list(range(2 * CALLS_AT_ONCE + 1))
    assert most == CALLS_AT_ONCE


def test_nothing_is_called_after_the_group_of_an_error() -> None:
    used: list[int] = []

    async def call(item: int) -> None:
        used.append(item)
        if item == 1:
            raise ValueError(item)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(call_each(range(2 * CALLS_AT_ONCE), call))
    assert used == list(range(CALLS_AT_ONCE))
