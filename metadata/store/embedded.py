"""A real ZooKeeper server as a child process, for use on one machine and for tests.

Leaves finding Java and the jars to `embedded_java.py`, and stopping with this process to
`embedded_supervisor.py`.

Format: `data_dir` holds zookeeper.properties (written at each start), zookeeper.log (what Java
printed, also at earlier starts), port (the port of the last start), lock (held by the server while
it runs) and ZooKeeper's version-2.

Invariants: the server ends with this process; a data directory has one server; the server that
answers at the port is ours; each write is on disk before it is answered (forceSync stays on).

Source: ZooKeeper 3.9, administrator's guide.
"""

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from metadata.errors import EmbeddedServerError, PortInUseError
from metadata.store.embedded_java import find_jars, find_java
from metadata.store.embedded_ports import HOST, free_port, is_free
from quire.addresses import join_address

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
DIRECTORY_MODE: Final = 0o700
"""Java writes files that every user may read, with the keys of users and of repair."""
LOCK_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.01
ANSWER_TIMEOUT_S: Final = 2.0
READY_TIMEOUT_S: Final = 0.2  # a starting server accepts connections but may never answer
PATIENCE: Final = 0.1
"""Limit of one answer as a share of the time since the start, from READY_TIMEOUT_S on."""
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
LOG_TAIL_BYTES: Final = 2_000
TICK_MS: Final = 500
HEAP_MB: Final = 512
SESSION_TIMEOUT_MAX_MS: Final = 60_000
PORT_TRIES: Final = 5

_SUPERVISOR: Final = "metadata.store.embedded_supervisor"
_MAIN_CLASS: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"


class EmbeddedZooKeeper:
    """An embedded ZooKeeper server. With `port` 0 it uses the port of the last start if that is
    free, else any free port.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        tick_ms: int = TICK_MS,
        heap_mb: int = HEAP_MB,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._start_timeout_s = start_timeout_s
        self._wanted_port = port
        self._tick_ms = tick_ms
        self._heap_mb = heap_mb
        self._environment = os.environ if environment is None else environment
        self._port = 0
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def port(self) -> int:
        """Port on the loopback address."""
        return self._port

    @property
    def address(self) -> str:
        """The server's `host:port`."""
        return join_address(HOST, self._port)

    @property
    def uri(self) -> str:
        """The server's metadata URI, without a chroot."""
        return f"zk://{self.address}"

    @property
    def pid(self) -> int:
        """Process id of the Java process; 0 while none runs."""
        return self._pid if self.is_running else 0

    @property
    def is_running(self) -> bool:
        """Whether the process lives; true while it is paused."""
        return self._supervisor is not None and self._supervisor.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start and wait until it answers.

        Raises EmbeddedServerError (no Java, no jars, directory in use, or a failed start with the
        end of the log), PortInUseError.
        """
        assert not self.is_running, "started once"
        java = find_java(self._environment)
        jars = find_jars()
        lock = await lock_directory(self.data_dir)
        try:
            for attempt in range(PORT_TRIES):
                self._port = self._choose_port()
                self._spawn(java, jars, lock)
                if await self._wait_until_ready(is_last=attempt == PORT_TRIES - 1):
                    break
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(lock)  # the server keeps it open
        (self.data_dir / "port").write_text(f"{self._port}\n")

    async def stop(self) -> None:
        """Stop the server cleanly, or kill it after STOP_TIMEOUT_S."""
        if self.is_running:
            os.kill(self._pid, signal.SIGCONT)
            os.kill(self._pid, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_TIMEOUT_S
        while self.is_running and loop.time() < deadline:  # noqa: ASYNC110  # another process
            await asyncio.sleep(POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server at once, as kill -9 does."""
        if self._supervisor is None:
            return
        if self.is_running and self._pid:
            os.kill(self._pid, signal.SIGKILL)
        _close(self._supervisor.stdin)  # also ends a server whose process id is still unknown
        _close(self._supervisor.stdout)
        self._supervisor.wait()
        self._supervisor = None
        self._pid = 0

    def pause(self) -> None:
        """Pause the server process; its clients receive no answers."""
        assert self.is_running
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the paused server process."""
        assert self.is_running
        os.kill(self._pid, signal.SIGCONT)

    async def restart(self) -> None:
        """Stop if running, and start on the same port with the same data."""
        await self.stop()
        await self.start()

    def _choose_port(self) -> int:
        wanted = self._port or self._wanted_port
        if wanted == 0:
            with contextlib.suppress(OSError, ValueError):
                wanted = int((self.data_dir / "port").read_text())
        if wanted and is_free(wanted):
            return wanted
        if self._wanted_port:
            raise PortInUseError(HOST, self._wanted_port)
        return free_port()

    def _spawn(self, java: Path, jars: list[Path], lock: int) -> None:
        properties = self.data_dir / "zookeeper.properties"
        properties.write_text(self._properties(), encoding="ascii")
        command = [
            str(java),
            "-Xms16m",
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
            os.pathsep.join(map(str, jars)),
            _MAIN_CLASS,
            str(properties),
        ]
        with self._kept_log().open("ab") as log:
            self._supervisor, self._pid = spawn_supervised(command, lock, self.data_dir, log)

    def _kept_log(self) -> Path:
        """Return the file for what Java prints, with what earlier starts printed; a large one is
        kept as zookeeper.log.1.
        """
        path = self.data_dir / "zookeeper.log"
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name("zookeeper.log.1"))
        return path

    def _properties(self) -> str:
        settings = {
            "dataDir": self.data_dir,
            "clientPort": self._port,
            "clientPortAddress": HOST,
            "tickTime": self._tick_ms,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": SESSION_TIMEOUT_MAX_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,conf,ruok,mntr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        return properties_text(settings)

    async def _wait_until_ready(self, *, is_last: bool) -> bool:
        """Return True when our server answers; False if another process has just taken its port."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() < began + self._start_timeout_s:
            if not self.is_running:
                status = self._supervisor.returncode if self._supervisor else None
                taken = not is_free(self._port)
                self.kill()
                if taken and self._wanted_port:
                    raise PortInUseError(HOST, self._wanted_port)
                if taken and not is_last:
                    self._port = 0
                    return False
                raise EmbeddedServerError(
                    f"ZooKeeper ended with status {status} while starting: {self._log_tail()}"
                )
            # On a busy machine the first answers take long.
            patience_s = max(READY_TIMEOUT_S, PATIENCE * (loop.time() - began))
            if await serves_directory(HOST, self._port, self.data_dir, patience_s):
                return True
            await asyncio.sleep(POLL_S)
        raise EmbeddedServerError(
            f"ZooKeeper did not answer at {self.address} within "
            f"{self._start_timeout_s:.0f} s: "
            f"{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            text = (self.data_dir / "zookeeper.log").read_bytes()[-LOG_TAIL_BYTES:]
            if text.strip():
                return text.decode(errors="replace").strip()
        return "its log is empty"


async def lock_directory(data_dir: Path) -> int:
    """Make a server's directory, for its owner alone, and return a locked descriptor of it; wait
    for an earlier server that is still stopping. Raises EmbeddedServerError, OSError.
    """
    descriptor = _open_lock(data_dir)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() >= deadline:
                os.close(descriptor)
                raise EmbeddedServerError(
                    f"{data_dir} is in use by another ZooKeeper server: stop that server, "
                    "or choose another directory"
                ) from None
            await asyncio.sleep(POLL_S)
        else:
            return descriptor


def _open_lock(data_dir: Path) -> int:
    data_dir.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # who owns it decides, as for a volume
        data_dir.chmod(DIRECTORY_MODE)
    return os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)


def spawn_supervised(
    command: Sequence[str], lock: int, directory: Path, log: IO[bytes] | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command that ends with this process and holds the lock; return its supervisor and its
    own process id. It prints into `log`, or else to the standard error of this process.
    """
    supervisor = importlib.util.find_spec(_SUPERVISOR)  # found, not imported
    assert supervisor is not None
    assert supervisor.origin is not None
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.origin, str(lock), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=(lock,),
        start_new_session=True,  # Ctrl-C reaches this process, which stops the server
        cwd=directory,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline() or 0)


async def serves_directory(
    host: str, port: int, data_dir: Path, timeout_s: float = READY_TIMEOUT_S
) -> bool:
    """Return whether the server at a port serves clients from this directory, if it answers in
    time; another server would name another directory.
    """
    mode = await four_letter_word(host, port, "srvr", timeout_s=timeout_s)
    if "Mode:" not in mode:
        return False
    configuration = await four_letter_word(host, port, "conf")
    return f"dataDir={data_dir / 'version-2'}" in configuration.splitlines()


def properties_text(settings: Mapping[str, object]) -> str:
    """Return settings as the text of a Java properties file."""
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in settings.items())


async def four_letter_word(
    host: str, port: int, word: str, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> str:
    """Return a ZooKeeper server's answer to one of its four-letter words; "" without one."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(word.encode())
                return (await reader.read(-1)).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return ""


def _escaped(text: str) -> str:
    """Return a value for a Java properties file."""
    escaped = text.replace("\\", "\\\\")
    return "".join(c if c.isascii() else _unicode_escapes(c) for c in escaped)


def _unicode_escapes(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()
