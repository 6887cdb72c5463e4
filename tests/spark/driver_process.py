"""A streaming driver as a separate process that a test kills with all of its children.

Leaves what the driver does to its module, and kills at a chosen moment to `crashing`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DRIVER_GROUP = "QUIRE_TEST_DRIVER_GROUP"
"""Marks the process group of a driver and its Java; the Python workers create a separate one."""
LOG_TAIL_CHARACTERS = 6_000
SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of the Java of tests and of their drivers: it runs for less than a few minutes, and
its second compiler costs more than it saves.
"""


def start_driver(module: str, arguments: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start `python -m module` in a new process group; append its output to the log."""
    with log_path.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | SHORT_LIVED_JAVA,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def mark_driver() -> None:
    """Record this process as the driver, for its Java and its workers. Call it before Spark."""
    os.environ[DRIVER_GROUP] = str(os.getpgrp())


def kill_driver(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver (-9) with its Java and all of its workers."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        driver.wait()


def log_tail(log_path: Path) -> str:
    """Return the end of a driver's log."""
    return log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
