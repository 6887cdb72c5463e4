"""Tests of signals to a child of a local cluster that has just ended."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from quire.errors import LocalClusterError
from quire.local.child_process import ChildProcess


@pytest.fixture
def child(tmp_path: Path) -> ChildProcess:
    """Start a child that waits for the end of its input."""
    program = "import sys; sys.stdin.read()"
    return ChildProcess("child", [sys.executable, "-c", program], tmp_path / "log")


async def test_stopping_a_child_that_just_ended(child: ChildProcess) -> None:
    await child.start(os.environ)
    _end_unheard(child)
    await child.stop()
    assert not child.is_running


async def test_signalling_a_child_that_just_ended(child: ChildProcess) -> None:
    await child.start(os.environ)
    child.kill()
    await child.wait_ended()
    with pytest.raises(LocalClusterError, match="child does not run"):
        child.pause()


def _end_unheard(child: ChildProcess) -> None:
    """Kill a child and reap it; the loop, which does not run meanwhile, is notified later."""
    child.kill()
    with suppress(ChildProcessError):  # a thread of asyncio has reaped it
        os.waitpid(child.pid, 0)
