"""Lets these tests run where a pause costs no time."""

from tests.support.metadata.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}
