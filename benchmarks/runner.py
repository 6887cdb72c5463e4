"""Runner of one benchmark script: its options, its event loop, its directory, its report.

Leaves measuring to the script that calls `run`.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import machine
from benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Bench:
    """Environment of a script: its options, its data directory, its report."""

    options: argparse.Namespace
    directory: Path
    report: Report

    @property
    def is_smoke(self) -> bool:
        """Whether this run only shows that the script works."""
        return bool(self.options.smoke)

    @property
    def repetitions(self) -> int:
        """Number of runs of each case."""
        return 1 if self.is_smoke else int(self.options.repeat)

    def size(self, usual: int, smoke: int) -> int:
        """Return the size to use: `usual`, or `smoke` in a smoke run."""
        return smoke if self.is_smoke else usual

    @asynccontextmanager
    async def measured(self, what: str) -> AsyncIterator[None]:
        """Wrap one measured run; pending writes of earlier runs reach the disk first."""
        self.report.note(what)
        await asyncio.to_thread(machine.settle)
        await asyncio.sleep(0 if self.is_smoke else SETTLE_S)
        yield

    @contextmanager
    def subdirectory(self) -> "Iterator[Path]":
        """Create a directory that is removed at the end of the block."""
        path = Path(tempfile.mkdtemp(prefix="run-", dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def run(
    name: str,
    measure: Callable[[Bench], Awaitable[None]],
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
    *,
    repeat: int = 5,
) -> None:
    """Run a script's `measure` once, as a command; the process ends with its outcome."""
    started_as = sys.modules["__main__"].__spec__
    module = started_as.name.removesuffix(".__main__") if started_as else f"benchmarks.{name}"
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--smoke", action="store_true", help="a few seconds, tiny sizes")
    parser.add_argument("--repeat", type=int, default=repeat, help="runs of each case")
    parser.add_argument("--data-dir", type=Path, help="directory for data during the run")
    parser.add_argument(
        "--loop", choices=("uvloop", "asyncio"), help="default: uvloop if installed"
    )
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args()
    parent = machine.choose_directory(options.data_dir)
    directory = Path(tempfile.mkdtemp(prefix=f"quire-bench-{name}-", dir=parent))
    report = Report(name)
    try:
        facts = machine.describe(directory)
        report.machine({**facts, "loop": _loop_name(options.loop), "smoke": options.smoke})
        run_loop(_call(measure, Bench(options, directory, report)), options.loop)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_loop(main: Coroutine[Any, Any, None], loop: str | None = None) -> None:
    """Run a coroutine on the given loop; by default on uvloop if installed, else on asyncio."""
    if _loop_name(loop) == "uvloop":
        import uvloop  # noqa: PLC0415  # optional

        uvloop.run(main)
    else:
        asyncio.run(main)


def _loop_name(wanted: str | None) -> str:
    if wanted is not None:
        return wanted
    try:
        import uvloop  # noqa: F401, PLC0415  # optional
    except ImportError:
        return "asyncio"
    return "uvloop"


async def _call(measure: Callable[[Bench], Awaitable[None]], bench: Bench) -> None:
    await measure(bench)
