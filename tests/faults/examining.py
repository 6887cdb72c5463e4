"""Check of a storage's directory: open it with the production code, as a restart does.

Leaves the promised facts to `promises`, and the use of the result to each campaign. The check
changes the directory: pass a copy.
"""

import asyncio
import json
import os
import shutil
import signal
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bookie.errors import BookieError
from tests.faults.children import Child, make_directory
from tests.faults.promises import Promises, audit, open_storage

EXAMINE_S_MAX: Final = 60
LINE_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the check of one directory."""

    served: int = 0
    unknown: int = 0
    violations: tuple[str, ...] = ()
    is_limbo: bool = False
    refused: str = ""
    """Typed error with which the storage refused to open, or failed at a request."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Size in bytes of each file of the log after the opening."""

    def as_line(self) -> bytes:
        """Return the line with which a process reports this."""
        return json.dumps(asdict(self)).encode() + LINE_END

    @classmethod
    def of_line(cls, line: bytes) -> "Verdict":
        """Parse such a line."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields | {"violations": tuple(fields["violations"])})

    @property
    def broken(self) -> list[str]:
        """Return everything that is wrong with it also if old segments were damaged."""
        found = list(self.violations)
        if self.refused:
            found.append(f"does not open: {self.refused}")
        if self.is_limbo:
            found.append("it is in limbo, and nothing new was damaged")
        return found

    @property
    def shortcomings(self) -> list[str]:
        """Return everything that is wrong with it if no damage was done."""
        found = self.broken
        if self.unknown:
            found.append(f"{self.unknown} promised entries are unknown, and nothing was damaged")
        return found


async def examine(directory: Path, promises: Promises) -> Verdict:
    """Open, request everything that was promised, and close. Any error but a BookieError is a
    finding.
    """
    try:
        storage = await open_storage(directory)
        sizes = {path.name: path.stat().st_size for path in (directory / "log").glob("*")}
        found = await audit(storage, promises)
        is_limbo = storage.statistics().is_limbo
        await storage.close()
    except BookieError as error:
        return Verdict(refused=f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno} {frame.name}()"
        return Verdict(violations=(f"an untyped error: {error!r} at {place}",))
    return Verdict(found.served, found.unknown, tuple(found.violations), is_limbo, "", sizes)


def examine_copy(directory: Path, promises: Promises) -> Verdict:
    """Check a copy of a directory in a separate process; the directory does not change."""
    parent = make_directory("examined", in_memory=True)
    copy = parent / "copy"
    try:
        shutil.copytree(directory, copy)

        def work() -> None:
            signal.alarm(EXAMINE_S_MAX)
            os.write(1, asyncio.run(examine(copy, promises)).as_line())

        end = Child(work).wait(EXAMINE_S_MAX)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    if not end.output.endswith(LINE_END):
        return Verdict(violations=(f"the process that opened it ended with {end.status}",))
    return Verdict.of_line(end.output)
