"""A long callback shows as a late timer."""

import asyncio
import time

from serving.loop_lag import LoopLag


async def test_a_stall_is_counted_once_with_its_length() -> None:
    lag = LoopLag(interval_s=0.01)
    lag.start()
    await asyncio.sleep(0.05)
    looks = sum(lag.counts.counts)
    assert looks >= 1
    time.sleep(0.25)  # noqa: ASYNC251 - the stall
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert lag.longest_s >= 0.2
    assert sum(lag.counts.counts) == looks + 1
    lag.close()
    await asyncio.sleep(0.03)
    assert sum(lag.counts.counts) == looks + 1
