"""One bookie of a local cluster, as a process that can be hurt in the usual ways.

Leaves the process to `quire.child_process`, and the bookie to `quire bookie run`.

Invariant: a restarted bookie has its old directory, hence its old id; its port may be another.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.child_process import ChildProcess, child_variables

READY_TIMEOUT_S: Final = 30.0
RESERVE_BYTES: Final = 1024 * 1024
"""A bookie of its own disk keeps far more for emergencies; several on a laptop must not."""
SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Some file systems are given a whole segment at once: four bookies share this disk."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a bookie prints once it serves."""

    id: str
    address: str
    admin_url: str


class LocalBookie:
    """A bookie: its id, where it is, and how to kill, pause and restart it."""

    def __init__(self, name: str, data_dir: Path, log_path: Path, metadata_uri: str) -> None:
        self.name = name
        self.data_dir = data_dir
        options = {
            "data-dir": str(data_dir),
            "metadata": metadata_uri,
            "reserve-bytes-min": str(RESERVE_BYTES),
            "reserve-share": "0",
            "segment-bytes-max": str(SEGMENT_BYTES),
            "disk-high-mark": "1.0",
            "disk-low-mark": "1.0",
            "location": f"/local/{name}/{name}",
            "format-if-empty": name,
        }
        flags = [word for key, value in options.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "quire.cli.main", "bookie", "run", *flags]
        self._process = ChildProcess(name, [*command, "--die-with-parent"], log_path)
        self._ready: _Ready | None = None

    @property
    def id(self) -> str:
        """The bookie's id, which it keeps for life."""
        return self._known.id

    @property
    def address(self) -> str:
        """Where it serves clients: host:port, as of its latest start."""
        return self._known.address

    @property
    def admin_url(self) -> str:
        """Where its admin server is, as of its latest start."""
        return self._known.admin_url

    @property
    def pid(self) -> int:
        """Its process id, as of its latest start."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process.is_running

    async def start(self) -> None:
        """Start it; return once it serves and is registered. Raises LocalClusterError."""
        await self._process.start(child_variables())
        line = await self._process.first_line(READY_TIMEOUT_S)
        try:
            fields = json.loads(line)
            self._ready = _Ready(fields["id"], fields["address"], fields["admin"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._process.failure(f"printed {line!r} when it should be ready") from error

    def kill(self) -> None:
        """End it with kill -9."""
        self._process.kill()

    def pause(self) -> None:
        """Stop it with SIGSTOP: it keeps its connections and its registration, and is silent."""
        self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._process.resume()

    async def stop(self) -> None:
        """End it in order; nothing if it has ended."""
        await self._process.stop()

    async def restart(self) -> None:
        """Start it again on its directory, after stopping it in order if it still runs."""
        await self._process.stop()
        await self.start()

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._process.log_tail()

    @property
    def _known(self) -> _Ready:
        assert self._ready is not None, "it was never started"
        return self._ready
