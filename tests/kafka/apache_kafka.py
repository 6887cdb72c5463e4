"""Real Apache Kafka node, to check the scenarios: a failure there is an error of the test.

Leaves fetching it to `tests.kafka.jars`.

Source: settings that are not named here are the defaults of Kafka 4.1.0.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.peers.java_process import JavaServer, run_tool
from benchmarks.peers.maven import JavaPeer
from metadata.store.embedded_ports import HOST, free_port
from tests.kafka.jars import kafka_jars

CLUSTER_ID: Final = "cXVpcmUtYmVuY2htYXJrcw"
"""Any 16 bytes serve for a cluster that lives for minutes."""
FLAGS: Final = ("-Xms512m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What a node has besides the settings of this module."""

    listeners: Mapping[str, str] = field(default_factory=dict)
    """Address and port of each further listener, under its name."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings, which replace those of this module."""
    format_arguments: Sequence[str] = ()
    """Arguments of the tool that formats the node's disk."""


@asynccontextmanager
async def apache_kafka(options: NodeOptions | None = None) -> AsyncIterator[str]:
    """Run a node that is broker and controller; yield its address without a login."""
    java = await kafka_jars()
    directory = Path(tempfile.mkdtemp(prefix="quire-kafka-"))
    try:
        async with _node(java, directory, options or NodeOptions()) as address:
            yield address
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def _node(java: JavaPeer, directory: Path, options: NodeOptions) -> AsyncIterator[str]:
    port, controller = [free_port() for _ in range(2)]
    file, log = directory / "server.properties", directory / "kafka.log"
    file.write_text(settings(port, controller, directory, options))
    tool = [java.java, "-cp", java.classpath, "kafka.tools.StorageTool", "format"]
    await run_tool([*tool, "-t", CLUSTER_ID, "-c", str(file), *options.format_arguments], log)
    command = [java.java, *FLAGS, "-cp", java.classpath, "kafka.Kafka", str(file)]
    server = JavaServer("kafka", command, log)
    try:
        await server.start()
        await server.wait_listening(port)
        yield f"{HOST}:{port}"
    finally:
        await server.kill()


def settings(
    port: int, controller: int, directory: Path, options: NodeOptions | None = None
) -> str:
    """Return the node's configuration file."""
    given = options or NodeOptions()
    others = [f"{name}://{place}" for name, place in given.listeners.items()]
    broker = ",".join([f"PLAINTEXT://{HOST}:{port}", *others])
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": broker,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        **given.settings,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
