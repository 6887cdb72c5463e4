"""One server of a local cluster, as a process that can be killed, paused and restarted.

Leaves the process to `quire.local.child_process`, and its options to `quire.local.local_bookie`,
`quire.local.local_broker` and `quire.local.local_console`.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.local.child_process import OWN_VARIABLES, ChildProcess, child_variables
from quire.local.starting import scaled_s


@dataclass(frozen=True, slots=True)
class _Ready:
    """Line that a server prints once it serves."""

    id: str
    address: str
    admin_url: str
    listeners: Mapping[str, str]
    login_token: str


class LocalServer:
    """A server: its addresses, and calls to kill, pause and restart it."""

    def __init__(
        self,
        verb: tuple[str, ...],
        name: str,
        flags: Mapping[str, str],
        options: Mapping[str, str],
        log_path: Path,
        *,
        ready_timeout_s: float,
    ) -> None:
        """`verb` are the words of the command, such as bookie, run. `flags` are given as flags,
        `options` as variables, so that options of each type have one form.
        """
        self.name = name
        self.code_dir: Path | None = None
        """Directory from which its next start imports Quire; None: where this process found it."""
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "quire.cli.main", *verb, *words]
        self._process = ChildProcess(name, [*command, "--die-with-parent"], log_path)
        self._noun = verb[0]
        self._variables: dict[str, str] = {}
        self.set_options(options)
        self._ready_timeout_s = ready_timeout_s
        self._ready: _Ready | None = None

    def set_options(self, options: Mapping[str, str]) -> None:
        """Change options for its next start; the others stay."""
        self._variables |= {
            f"{OWN_VARIABLES}{self._noun}_{key}".replace("-", "_").upper(): value
            for key, value in options.items()
        }

    @property
    def address(self) -> str:
        """Address for clients, host:port, as of its latest start."""
        return self._known.address

    @property
    def admin_url(self) -> str:
        """URL of its admin server, as of its latest start."""
        return self._known.admin_url

    @property
    def listeners(self) -> Mapping[str, str]:
        """Address of each listener of a broker, as of its latest start."""
        return self._known.listeners

    @property
    def login_token(self) -> str:
        """Token for logins at a console that made one for this run; empty if it made none."""
        return self._known.login_token

    @property
    def pid(self) -> int:
        """Its process id, as of its latest start."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process.is_running

    async def start(self, *, started_count: int = 1) -> None:
        """Start the server; return once it serves and is registered. Raises LocalClusterError, also
        if that takes longer than a limit that grows with the load of the machine and with
        `started_count`, the servers that start at the same time.
        """
        code = {} if self.code_dir is None else {"PYTHONPATH": str(self.code_dir)}
        await self._process.start(child_variables() | code | self._variables)
        line = await self._process.first_line(scaled_s(self._ready_timeout_s, started_count))
        try:
            fields = json.loads(line)
            self._ready = _Ready(
                str(fields["id"]),
                fields["address"],
                fields.get("admin", fields["address"]),
                fields.get("listeners", {}),
                fields.get("login_token", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self._process.failure(
                f"printed {line!r} instead of the line that shows that it is ready"
            ) from error

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._process.kill()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): it keeps its connections, and for some time its
        registration, but does not respond.
        """
        self._process.pause()

    def resume(self) -> None:
        """Resume the process (SIGCONT)."""
        self._process.resume()

    async def stop(self) -> None:
        """Stop the server in order; do nothing if it has ended."""
        await self._process.stop()

    async def restart(self) -> None:
        """Start the server again, after an orderly stop if it still runs."""
        await self._process.stop()
        await self.start()

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._process.log_tail()

    @property
    def _known(self) -> _Ready:
        assert self._ready is not None, "it was never started"
        return self._ready
