"""Loops of coroutine tests: virtual time and a network in memory."""

from tests.virtual_network import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
