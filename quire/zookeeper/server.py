"""Java process of one ZooKeeper server, from its start to its end.

Leaves ending with this process to `metadata.store.embedded_supervisor`.

Format: `data_dir` holds zookeeper.properties (written at each start), myid (the server's number in
an ensemble), lock (held by the server while it runs) and ZooKeeper's version-2. What Java prints
goes to the standard error of this process.

Invariants: a directory has one server, and belongs to one number; the server ends with this
process; each write is on disk before it is answered (forceSync stays on).

Source: ZooKeeper 3.9, administrator's guide, "Configuration Parameters".
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata.errors import EmbeddedServerError, OtherServersDirectoryError
from metadata.store.embedded import (
    lock_directory,
    properties_text,
    serves_directory,
    spawn_supervised,
)
from metadata.store.embedded_java import find_jars, find_java
from quire.addresses import is_wildcard, join_address
from quire.server.server_log import ServerLog
from quire.zookeeper.options import ZooKeeperOptions

if TYPE_CHECKING:
    import subprocess

POLL_S: Final = 0.1
STOP_TIMEOUT_S: Final = 15.0
WAIT_REPORTED_S: Final = 30.0
"""Time between two lines in the log of a server that does not serve yet, in seconds."""
LOOPBACK: Final = "127.0.0.1"


class ZooKeeperServer:
    """One server. Call `start`, `wait_until_serving`, `wait_for_failure` and `stop`."""

    def __init__(
        self, options: ZooKeeperOptions, environment: Mapping[str, str], log: ServerLog
    ) -> None:
        self._options = options
        self._environment = environment
        self._log = log
        self._data_dir = Path(options.data_dir).absolute()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def address(self) -> str:
        """`host:port` for clients of this machine."""
        return join_address(self._local_host, self._options.port)

    @property
    def pid(self) -> int:
        """Process id of Java."""
        return self._pid

    async def start(self) -> None:
        """Start Java. Raises EmbeddedServerError: no Java, no jars, or a directory that cannot be
        used.
        """
        java, jars = find_java(self._environment), find_jars()
        try:
            lock = await lock_directory(self._data_dir)
        except OSError as error:
            raise EmbeddedServerError(f"data_dir cannot be used: {error}") from error
        try:
            self._claim_number()
            properties = self._data_dir / "zookeeper.properties"
            settings = settings_of(self._options, self._data_dir)
            properties.write_text(properties_text(settings), encoding="ascii")
            command = java_command(java, jars, properties, self._options)
            self._supervisor, self._pid = spawn_supervised(command, lock, self._data_dir, None)
        finally:
            os.close(lock)  # the server keeps it open

    async def wait_until_serving(self) -> None:
        """Return when clients are served: in an ensemble when most servers are up.

        Raises EmbeddedServerError if Java ends.
        """
        loop = asyncio.get_running_loop()
        reported_s = loop.time()
        while not await serves_directory(self._local_host, self._options.port, self._data_dir):
            self._check_alive()
            if loop.time() - reported_s >= WAIT_REPORTED_S:
                reported_s = loop.time()
                self._log.warning("ZooKeeper does not serve yet", servers=self._options.servers)
            await asyncio.sleep(POLL_S)

    async def wait_for_failure(self) -> None:
        """Raise EmbeddedServerError when Java ends."""
        while True:
            self._check_alive()
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """Stop Java in order, or kill it after STOP_TIMEOUT_S."""
        if self._supervisor is None:
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + STOP_TIMEOUT_S
        if self._pid and self._supervisor.poll() is None:
            os.kill(self._pid, signal.SIGTERM)
        while self._supervisor.poll() is None and loop.time() < deadline_s:  # noqa: ASYNC110 - another process
            await asyncio.sleep(POLL_S)
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()  # kills a server that still runs
        self._supervisor.wait()
        self._supervisor = None

    @property
    def _local_host(self) -> str:
        return LOOPBACK if is_wildcard(self._options.host) else self._options.host

    def _claim_number(self) -> None:
        """Write the server's number. Raises OtherServersDirectoryError."""
        path = self._data_dir / "myid"
        wanted = str(self._options.id or "")
        stored = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if stored and stored != wanted:
            raise OtherServersDirectoryError(
                f"{self._data_dir} belongs to server {stored} of an ensemble, and this is "
                f"{f'server {wanted}' if wanted else 'a single server'}: use the directory of this"
                " server"
            )
        if wanted and not stored:
            path.write_text(f"{wanted}\n", encoding="utf-8")

    def _check_alive(self) -> None:
        assert self._supervisor is not None, "it was started"
        status = self._supervisor.poll()
        if status is not None:
            raise EmbeddedServerError(
                f"ZooKeeper ended with status {status}: see the lines of Java above. The usual"
                f" reasons are a port in use (clients: {self.address}), a name in servers that"
                " leads to another machine, or a full disk"
            )


FOUR_LETTER_WORDS: Final = "srvr,conf,ruok,mntr"
"""Questions that clients without a session may ask; none of them changes anything."""

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def settings_of(options: ZooKeeperOptions, data_dir: Path) -> dict[str, object]:
    """Return the settings of a server by their names in ZooKeeper."""
    settings: dict[str, object] = {
        "dataDir": data_dir,
        "clientPort": options.port,
        "clientPortAddress": options.host,
        "tickTime": options.tick_ms,
        "minSessionTimeout": min(2 * options.tick_ms, options.session_timeout_max_ms),
        "maxSessionTimeout": options.session_timeout_max_ms,
        "maxClientCnxns": options.connections_per_address_max,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": FOUR_LETTER_WORDS,
        "autopurge.snapRetainCount": options.snapshots_kept,
        "autopurge.purgeInterval": options.purge_interval_h,
    }
    if options.members:
        settings["initLimit"] = options.start_ticks
        settings["syncLimit"] = options.sync_ticks
        settings["cnxTimeout"] = options.election_connect_ms
        settings["fastleader.maxNotificationInterval"] = options.election_pause_max_ms
        settings["quorumListenOnAllIPs"] = str(options.peers_on_all_addresses).lower()
        settings.update(member.setting for member in options.members)
    return settings


def java_command(
    java: Path, jars: Sequence[Path], properties: Path, options: ZooKeeperOptions
) -> list[str]:
    """Return the command that runs a server with the settings of a file."""
    return [
        str(java),
        f"-Xmx{options.heap_mb}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dzookeeper.admin.enableServer=false",
        "-cp",
        os.pathsep.join(map(str, jars)),
        _MAIN_CLASS,
        str(properties),
    ]
