"""Apache Kafka as a peer: three brokers that are also controllers, and the load on them.

Leaves the load to `peer_load` and java/kafka/KafkaLoad.java, which also creates the topics: the
flush interval of a log is a setting of the topic, so one set of brokers serves both rows.

Source: bin/kafka-server-start.sh and bin/kafka-run-class.sh of Kafka 4.1.0 for heap and collector.
Settings that are not listed here have their defaults.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
from benchmarks.peers.workloads import SMALL_OUTSTANDING_KAFKA, Subject, Trial
from metadata.store.embedded_ports import HOST, free_port

BROKERS: Final = 3
CLUSTER_ID: Final = "cXVpcmUtYmVuY2htYXJrcw"
"""Id of the cluster: any 16 bytes are enough for a cluster that runs for a minute."""
FORMAT: Final = ("kafka.tools.StorageTool", "format")
SERVER_FLAGS: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
CLIENT_FLAGS: Final = ("-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


async def measure_load(trial: Trial, java: JavaPeer, logs: Path) -> None:
    """Append and read on three brokers."""
    peer = Peer(
        trial.sizes.kafka,
        SMALL_OUTSTANDING_KAFKA,
        variants=[(Subject.KAFKA, "default"), (Subject.KAFKA_SYNCED, "synced")],
        ways=[(Subject.KAFKA, "consumer")],
    )
    with trial.bench.subdirectory() as directory:
        async with running_brokers(directory, java, logs) as (servers, addresses):
            log = logs / "client.log"
            async with LoadClient(java, CLIENT_FLAGS, "KafkaLoad", addresses, log) as client:
                await client.ask("ready")
                await put_load(trial, peer, client, servers)


def settings_of(node: int, ports: Sequence[int], directory: Path) -> str:
    """Return one node's configuration file; `ports` are all brokers', then all controllers'."""
    controllers = ports[BROKERS:]
    voters = ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(controllers))
    broker, controller = f"{HOST}:{ports[node]}", f"{HOST}:{controllers[node]}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        "min.insync.replicas": 2,
        "default.replication.factor": BROKERS,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@asynccontextmanager
async def running_brokers(
    directory: Path, java: JavaPeer, logs: Path
) -> AsyncIterator[tuple[Sequence[JavaServer], str]]:
    """Start the brokers; yield them and their addresses in the form for clients."""
    command = [java.java, *SERVER_FLAGS, "-cp", java.classpath]
    tool = [java.java, "-cp", java.classpath, *FORMAT, "-t", CLUSTER_ID]
    ports = [free_port() for _ in range(2 * BROKERS)]
    servers: list[JavaServer] = []
    for node in range(BROKERS):
        home = directory / f"broker-{node}"
        home.mkdir()
        file, log = home / "server.properties", logs / f"broker-{node}.log"
        file.write_text(settings_of(node, ports, home))
        await run_tool([*tool, "-c", str(file)], log)
        servers.append(JavaServer(f"broker-{node}", [*command, "kafka.Kafka", str(file)], log))
    addresses = ",".join(f"{HOST}:{port}" for port in ports[:BROKERS])
    try:
        await start_all(servers, ports[:BROKERS])
        yield servers, addresses
    finally:
        await kill_all(servers)
