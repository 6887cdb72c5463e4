"""The loops of unit tests, and the limit of their waits."""

import asyncio
import time
import tomllib
from pathlib import Path

import pytest

from tests.steady_time import STEP_S, SteadyTimeLoop
from tests.until import WAIT_S, until, within

MANY_BYTES = 5_000_000
"""More than the kernel takes of one connection."""


async def test_bytes_on_their_way_arrive_before_a_timer_is_due() -> None:
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.readexactly(MANY_BYTES))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(MANY_BYTES))
        assert len(await asyncio.wait_for(received, 0.001)) == MANY_BYTES
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_the_work_of_a_thread_takes_no_virtual_time() -> None:
    began_s = asyncio.get_running_loop().time()
    await asyncio.wait_for(asyncio.to_thread(time.sleep, 0.05), 0.001)
    assert asyncio.get_running_loop().time() == began_s


async def test_a_wait_without_an_event_fails_by_name() -> None:
    with pytest.raises(AssertionError, match="not so after"):
        await until(lambda: False)
    with pytest.raises(AssertionError, match="no result after"):
        await within(asyncio.Event().wait())


@pytest.mark.real_time
async def test_a_pause_of_the_process_makes_no_timer_due() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteadyTimeLoop)
    timer = asyncio.ensure_future(asyncio.sleep(2 * STEP_S))
    await asyncio.sleep(0)
    time.sleep(4 * STEP_S)  # noqa: ASYNC251 - the pause
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not timer.done()
    await timer


def test_the_limit_of_waits_is_below_the_timeout_of_a_test() -> None:
    settings = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert settings["tool"]["pytest"]["ini_options"]["timeout"] > 2 * WAIT_S
