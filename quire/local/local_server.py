"""One server of a local cluster, as a process that can be killed, paused and restarted.

Leaves the process to `quire.local.child_process`, and the servers to the commands `quire bookie
run`, `quire broker run` and `quire console`.

Invariant: a restarted bookie has its old directory, and therefore its old id; a restarted server
has its old ports, so that clients find it again.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.addresses import join_address
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


BOOKIE_READY_S: Final = 30.0
RESERVE_BYTES: Final = 1024 * 1024
"""Reserve for emergencies, far below that of a bookie with a separate disk, because several share a
laptop's disk."""
SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Size of a segment. Each bookie reserves space for one more segment, and four bookies share this
disk."""


class LocalBookie(LocalServer):
    """A bookie: its id and its directory."""

    def __init__(
        self,
        name: str,
        data_dir: Path,
        log_path: Path,
        metadata_uri: str,
        other_options: Mapping[str, str],
    ) -> None:
        """`other_options` are options of `quire bookie run`, which override those of a local
        cluster.
        """
        self.data_dir = data_dir
        flags = {
            "data-dir": str(data_dir),
            "metadata": metadata_uri,
            "format-if-empty": name,
        }
        options = {
            "reserve_bytes_min": str(RESERVE_BYTES),
            "reserve_share": "0",
            "segment_bytes_max": str(SEGMENT_BYTES),
            "disk_high_mark": "1.0",
            "disk_low_mark": "0.99",
            "location": f"/local/{name}/{name}",
            **{key.replace("-", "_"): value for key, value in other_options.items()},
        }
        super().__init__(
            ("bookie", "run"), name, flags, options, log_path, ready_timeout_s=BOOKIE_READY_S
        )

    @property
    def id(self) -> str:
        """The bookie's id, which never changes."""
        return self._known.id


BROKER_READY_S: Final = 60.0
HOST: Final = "127.0.0.1"
SESSION_TIMEOUT_S: Final = 6.0
"""Time after which a killed broker's partitions are led by other brokers, or by itself if
restarted."""
STATE_PARTITIONS: Final = 4
"""Number of partitions of each internal topic, which is enough for a laptop."""
DEFAULT_REPLICATION_FACTOR_MAX: Final = 3


class LocalBroker(LocalServer):
    """A broker and its id; its address is for `bootstrap.servers`."""

    def __init__(
        self,
        broker_id: int,
        log_path: Path,
        metadata_uri: str,
        ports: Mapping[str, int],
        bookie_count: int,
        other_options: Mapping[str, str],
    ) -> None:
        """`ports` has the port of each listener under its security protocol, the one for other
        brokers first. `other_options` are options of `quire broker run`, which override those of a
        local cluster.
        """
        self.id = broker_id
        name = f"broker-{broker_id}"
        factor = max(1, min(DEFAULT_REPLICATION_FACTOR_MAX, bookie_count))
        flags = {
            "broker-id": str(broker_id),
            "metadata": metadata_uri,
            "listeners": ",".join(
                f"{name}://{join_address(HOST, port)}" for name, port in ports.items()
            ),
        }
        options = {
            "rack": name,
            "session_timeout_s": str(SESSION_TIMEOUT_S),
            "offsets_topic_partitions": str(STATE_PARTITIONS),
            "transaction_topic_partitions": str(STATE_PARTITIONS),
            "default_replication_factor": str(factor),
            "group_initial_rebalance_delay_ms": "0",
            **{key.replace("-", "_"): value for key, value in other_options.items()},
        }
        super().__init__(
            ("broker", "run"), name, flags, options, log_path, ready_timeout_s=BROKER_READY_S
        )


CONSOLE_READY_S: Final = 30.0
CONSOLE_NAME: Final = "console"


class LocalConsole(LocalServer):
    """A console; its address is a URL for browsers."""

    def __init__(
        self, log_path: Path, metadata_uri: str, port: int, other_options: Mapping[str, str]
    ) -> None:
        """`other_options` are options of `quire console`. With port 0 the kernel chooses one."""
        super().__init__(
            (CONSOLE_NAME,),
            CONSOLE_NAME,
            {"metadata": metadata_uri, "port": str(port)},
            {key.replace("-", "_"): value for key, value in other_options.items()},
            log_path,
            ready_timeout_s=CONSOLE_READY_S,
        )
