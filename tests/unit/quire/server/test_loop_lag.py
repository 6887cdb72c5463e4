"""A long callback shows as a late timer."""

import asyncio

from quire.server.latency import LoopLag
from tests.virtual_time import VirtualTimeLoop


async def test_a_stall_is_counted_once_with_its_length() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    lag = LoopLag(interval_s=0.01)
    lag.start()
    await asyncio.sleep(0.055)
    looks = sum(lag.counts.counts)
    assert looks == 5
    loop.advance(0.25)  # the stall
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0.24 <= lag.longest_s <= 0.25
    assert sum(lag.counts.counts) == looks + 1
    lag.close()
    await asyncio.sleep(0.03)
    assert sum(lag.counts.counts) == looks + 1
