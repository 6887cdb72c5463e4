"""Fixtures: these tests run on a loop on which pauses cost no time."""

from tests.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}
