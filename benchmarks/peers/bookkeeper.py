"""Apache BookKeeper as a peer: ZooKeeper, bookies with synced journals, and the load on them.

Leaves the load to `peer_load` and java/bookkeeper/BookKeeperLoad.java. ZooKeeper is that of Quire's
local clusters, so that it is the same for both.

Source: BookKeeper's bin/common.sh, for Java 11 and later: heap, collector and the other flags are
those that its start script sets. Settings that are not listed here have their defaults.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.java_process import (
    JavaServer,
    LoadClient,
    kill_all,
    run_tool,
    start_all,
)
from benchmarks.peers.maven import JavaPeer
from benchmarks.peers.peer_load import Peer, put_load
from benchmarks.peers.workloads import (
    KIB_BYTES,
    KIB_OUTSTANDING,
    PAUSE_PER_S,
    SMALL_OUTSTANDING,
    Subject,
    Trial,
    Workload,
)
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.embedded_ports import HOST, free_port

MAJORITY: Final = "3/3/2"
ALL: Final = "3/3/3"
JAVA_FLAGS: Final = (
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    # Without these BookKeeper copies buffers for checksums and keeps the journal in the page cache.
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.zip=ALL-UNNAMED"),
)
SERVER_FLAGS: Final = (
    *("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g", "-XX:+UseG1GC"),
    *("-XX:MaxGCPauseMillis=10", "-XX:+ParallelRefProcEnabled", "-XX:+DisableExplicitGC"),
    *JAVA_FLAGS,
    "-Dlog4j2.level=INFO",
)
CLIENT_FLAGS: Final = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", *JAVA_FLAGS)
FORMAT: Final = ("metaformat", "-n", "-f")


@dataclass(slots=True)
class Running:
    """Running bookies, by port, and a client of them."""

    servers: dict[int, JavaServer]
    client: LoadClient
    zookeeper: str
    """Address of ZooKeeper."""
    _starter: "_Starter"

    def member(self, members: object) -> JavaServer:
        """Return the first of an ensemble, given as host:port,host:port."""
        return self.servers[int(str(members).split(",")[0].rpartition(":")[2])]

    async def add_bookie(self) -> int:
        """Start one more bookie; return its port."""
        port = free_port()
        self.servers[port] = self._starter.bookie(port)
        await start_all([self.servers[port]], [port])
        return port

    @asynccontextmanager
    async def auto_recovery(self) -> AsyncIterator[JavaServer]:
        """Run one process of auto-recovery, auditor and worker, until the end of the block. A
        bookie that is gone counts as lost at once.
        """
        server = self._starter.auto_recovery()
        try:
            await server.start()
            yield server
        finally:
            await server.kill()


async def measure_load(trial: Trial, java: JavaPeer, logs: Path) -> None:
    """Append and read on three bookies."""
    peer = Peer(
        trial.sizes.bookkeeper,
        SMALL_OUTSTANDING,
        variants=[(Subject.BOOKKEEPER, MAJORITY)],
        ways=[(Subject.BOOKKEEPER, "async"), (Subject.BOOKKEEPER_BATCH, "batch")],
    )
    with trial.bench.subdirectory() as directory:
        async with running_bookies(directory, java, logs, 3) as bookies:
            await put_load(trial, peer, bookies.client, list(bookies.servers.values()))


async def measure_pause(trial: Trial, java: JavaPeer, logs: Path) -> None:
    """Pause a member of the ensemble while appends are due at a fixed rate."""
    sizes = trial.sizes
    with trial.bench.subdirectory() as directory:
        async with running_bookies(directory, java, logs, 5) as bookies:
            client, warm_up = bookies.client, sizes.bookkeeper.warm_up
            await client.ask("append", ALL, KIB_BYTES, warm_up, KIB_OUTSTANDING)
            async with trial.bench.measured(f"{Subject.BOOKKEEPER}: {Workload.PAUSE}"):
                times = (sizes.pause_s, sizes.pause_judged_from_s, sizes.pause_warm_up_s)
                started = await client.ask("open", ALL, KIB_BYTES, PAUSE_PER_S, *times)
                await asyncio.sleep(sizes.pause_from_s)
                bookies.member(started["members"]).pause()
                pause = await client.answer()
    trial.note(Workload.PAUSE, Subject.BOOKKEEPER, pause)


def settings_of(port: int, directory: Path, metadata_uri: str) -> str:
    """Return one bookie's configuration file."""
    settings = {
        "bookiePort": port,
        "advertisedAddress": HOST,
        "allowLoopback": "true",
        "metadataServiceUri": metadata_uri,
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
        "indexDirectories": directory / "ledgers",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "journalSyncData": "true",
        "journalMaxGroupWaitMSec": 1,
        "diskUsageWarnThreshold": 0.98,
        "diskUsageThreshold": 0.99,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class _Starter:
    """Command lines and configuration files of BookKeeper's processes."""

    def __init__(self, directory: Path, java: JavaPeer, logs: Path, metadata_uri: str) -> None:
        self._directory = directory
        self._logs = logs
        self._metadata_uri = metadata_uri
        self._command = [java.java, *SERVER_FLAGS, "-cp", java.classpath]

    def bookie(self, port: int) -> JavaServer:
        """Return a bookie with a new configuration."""
        main = "org.apache.bookkeeper.server.Main"
        return self._server(f"bookie-{port}", main, self.write_settings(port))

    def auto_recovery(self) -> JavaServer:
        """Return a process of auto-recovery."""
        home = self._directory / "auto-recovery"
        home.mkdir()
        file = home / "bookie.conf"
        settings = settings_of(free_port(), home, self._metadata_uri)
        file.write_text(f"{settings}lostBookieRecoveryDelay=0\n")
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        return self._server("auto-recovery", main, file)

    def write_settings(self, port: int) -> Path:
        """Write a bookie's configuration file."""
        home = self._directory / f"bookie-{port}"
        home.mkdir(exist_ok=True)
        file = home / "bookie.conf"
        file.write_text(settings_of(port, home, self._metadata_uri))
        return file

    async def format(self, settings: Path) -> None:
        """Make the metadata of an empty cluster."""
        shell = [*self._command, "org.apache.bookkeeper.bookie.BookieShell"]
        await run_tool([*shell, "-conf", str(settings), *FORMAT], self._logs / "format.log")

    def _server(self, name: str, main: str, settings: Path) -> JavaServer:
        command = [*self._command, main, "--conf", str(settings)]
        return JavaServer(name, command, self._logs / f"{name}.log")


@asynccontextmanager
async def running_bookies(
    directory: Path, java: JavaPeer, logs: Path, bookie_count: int
) -> AsyncIterator[Running]:
    """Start ZooKeeper, bookies with their data in `directory`, and a client; kill them at the end
    of the block.
    """
    async with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
        uri = f"zk://{zookeeper.address}/ledgers"
        starter = _Starter(directory, java, logs, uri)
        ports = [free_port() for _ in range(bookie_count)]
        servers = {port: starter.bookie(port) for port in ports}
        await starter.format(starter.write_settings(ports[0]))
        try:
            await start_all(list(servers.values()), ports)
            log = logs / "client.log"
            async with LoadClient(java, CLIENT_FLAGS, "BookKeeperLoad", uri, log) as client:
                await client.ask("ready")
                yield Running(servers, client, zookeeper.address, starter)
        finally:
            await kill_all(list(servers.values()))
