"""One broker of a local cluster, as a process that can be hurt in the usual ways.

Leaves the process to `quire.child_process`, and the broker to `quire broker run`.

Invariant: a restarted broker has its old id and, so that clients find it again, its old port.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.child_process import ChildProcess, child_variables

READY_TIMEOUT_S: Final = 60.0
HOST: Final = "127.0.0.1"
LISTENER: Final = "PLAINTEXT"
SESSION_TIMEOUT_S: Final = 6.0
"""A killed broker's partitions are led by others, or by itself started again, after this."""
STATE_PARTITIONS: Final = 4
"""Of each internal topic: a laptop need not lead more."""
DEFAULT_REPLICATION_FACTOR_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a broker prints once it serves."""

    address: str
    admin_url: str


class LocalBroker:
    """A broker: its id, where it is, and how to kill, pause and restart it."""

    def __init__(
        self, broker_id: int, log_path: Path, metadata_uri: str, port: int, bookie_count: int
    ) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        factor = max(1, min(DEFAULT_REPLICATION_FACTOR_MAX, bookie_count))
        options = {
            "broker-id": str(broker_id),
            "metadata": metadata_uri,
            "listeners": f"{LISTENER}://{HOST}:{port}",
            "rack": self.name,
            "session-timeout-s": str(SESSION_TIMEOUT_S),
            "offsets-topic-partitions": str(STATE_PARTITIONS),
            "transaction-topic-partitions": str(STATE_PARTITIONS),
            "default-replication-factor": str(factor),
            "group-initial-rebalance-delay-ms": "0",
        }
        flags = [word for key, value in options.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "quire.cli.main", "broker", "run", *flags]
        self._process = ChildProcess(self.name, [*command, "--die-with-parent"], log_path)
        self._ready: _Ready | None = None

    @property
    def address(self) -> str:
        """Where it serves clients: host:port, for `bootstrap.servers`."""
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
        """Start it; return once it serves. Raises LocalClusterError."""
        await self._process.start(child_variables())
        line = await self._process.first_line(READY_TIMEOUT_S)
        try:
            fields = json.loads(line)
            self._ready = _Ready(fields["address"], fields["admin"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._process.failure(f"printed {line!r} when it should be ready") from error

    def kill(self) -> None:
        """End it with kill -9."""
        self._process.kill()

    def pause(self) -> None:
        """Stop it with SIGSTOP: it keeps its connections, and its registration for a while."""
        self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._process.resume()

    async def stop(self) -> None:
        """End it in order; nothing if it has ended."""
        await self._process.stop()

    async def restart(self) -> None:
        """Start it again, after stopping it in order if it still runs."""
        await self._process.stop()
        await self.start()

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._process.log_tail()

    @property
    def _known(self) -> _Ready:
        assert self._ready is not None, "it was never started"
        return self._ready
