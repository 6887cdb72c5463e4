"""An ensemble of real ZooKeeper servers, whose members can be paused, killed and started again.

Leaves finding Java and the jars, and ending the servers with this process, to the modules of the
embedded server, which runs alone.

Source: ZooKeeper 3.9, administrator's guide, "Clustered (Multi-Server) Setup".
"""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Final, Self

from metadata.store.embedded import four_letter_word, properties_text, spawn_supervised
from metadata.store.embedded_java import find_jars, find_java
from metadata.store.embedded_ports import HOST, free_port

TICK_MS: Final = 500
SYNC_TICKS: Final = 2
"""Ticks without news of the leader, or of a quorum of followers, after which a server gives up."""
START_S: Final = 60.0
POLL_S: Final = 0.02
HEAP_MB: Final = 64
LOG_TAIL_BYTES: Final = 2_000

_Supervisor = subprocess.Popen[bytes]


class Member:
    """One server of an ensemble."""

    def __init__(self, directory: Path, number: int, ports: tuple[int, int, int]) -> None:
        self.number = number
        self.client_port, self._quorum_port, self._election_port = ports
        self._directory = directory / str(number)
        self._supervisor: _Supervisor | None = None
        self._pid = 0

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.client_port}"

    @property
    def as_peer(self) -> str:
        """The line of the configuration that names this server to the others."""
        return f"server.{self.number}={HOST}:{self._quorum_port}:{self._election_port}"

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def log_tail(self) -> str:
        """Return the end of what the process printed since its last start."""
        log = self._directory / "zookeeper.log"
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def start(self, peers: list[str]) -> None:
        """Start the process."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "myid").write_text(f"{self.number}\n")
        properties = self._directory / "zookeeper.properties"
        settings = {
            "dataDir": self._directory,
            "clientPort": self.client_port,
            "clientPortAddress": HOST,
            "tickTime": TICK_MS,
            "initLimit": 40,
            "syncLimit": SYNC_TICKS,
            "maxSessionTimeout": 120_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        properties.write_text(properties_text(settings) + "\n".join(peers) + "\n")
        command = [
            str(find_java(os.environ)),
            "-Xms16m",
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            os.pathsep.join(map(str, find_jars())),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(properties),
        ]
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with (self._directory / "zookeeper.log").open("wb") as log:
            self._supervisor, self._pid = spawn_supervised(command, lock, self._directory, log)
        os.close(lock)

    def pause(self) -> None:
        """Pause the process: its clients and peers receive nothing."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the paused process."""
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process at once."""
        if self._supervisor is None:
            return
        if self._pid and self._supervisor.poll() is None:
            os.kill(self._pid, signal.SIGKILL)
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            pipe.close()
        self._supervisor.wait()
        self._supervisor = None

    async def mode(self) -> str:
        """Return `leader` or `follower`; "" while it is neither, or does not answer."""
        answer = await four_letter_word(HOST, self.client_port, "srvr", timeout_s=0.5)
        return next(
            (line.split()[1] for line in answer.splitlines() if line.startswith("Mode:")), ""
        )


class ZooKeeperEnsemble:
    """Three servers on the loopback address; an asynchronous context manager."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        ports = [free_port() for _ in range(3 * count)]
        self.members = [
            Member(directory, 1 + n, (ports[3 * n], ports[3 * n + 1], ports[3 * n + 2]))
            for n in range(count)
        ]

    async def __aenter__(self) -> Self:
        for member in self.members:
            self.start(member)
        try:
            await self.leader()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def start(self, member: Member) -> None:
        """Start a member's process, for the first time or after its end."""
        member.start([each.as_peer for each in self.members])

    def uri(self, *members: Member) -> str:
        """Return the metadata URI of some members, without a chroot."""
        return "zk://" + ",".join(member.address for member in members)

    def others(self, member: Member) -> list[Member]:
        """Return all members but one."""
        return [each for each in self.members if each is not member]

    async def leader(self, *, among: list[Member] | None = None) -> Member:
        """Wait until one of some members leads and all the others follow; return it."""
        asked = self.members if among is None else among
        async with asyncio.timeout(START_S):
            while True:
                modes = await asyncio.gather(*[member.mode() for member in asked])
                if "leader" in modes and all(modes):
                    return asked[modes.index("leader")]
                await asyncio.sleep(POLL_S)
