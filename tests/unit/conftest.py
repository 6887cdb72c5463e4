"""Loops of coroutine tests: virtual time and a network in memory, unless a test is marked.

A test that is marked `real_time` runs on the machine's clock. It waits for events alone, with the
limit of `tests.until`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bookie.files.disk_calls import Threads
from tests.virtual_network import pytest_asyncio_loop_factories
from tests.virtual_time import VirtualTimeLoop

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture(autouse=True, scope="session")
def disk_takes_no_time() -> Iterator[None]:
    """Stop a virtual clock while a real disk works."""
    run = Threads.run

    def run_and_note(threads: Threads, call: Callable[..., Any], *arguments: Any) -> Any:
        result = run(threads, call, *arguments)
        loop = result.get_loop()
        if isinstance(loop, VirtualTimeLoop):
            loop.note_work(result)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Threads, "run", run_and_note)
        yield
