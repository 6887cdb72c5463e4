"""TLS is turned on at the brokers of a running cluster, step by step: no record is refused or lost.

The bookies take connections with TLS already. A step changes the listeners of one broker after the
other: first a second listener, then other brokers use it, then clients, then the first one goes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from metadata.store.embedded_ports import free_port
from quire.local.local_server import LocalBroker
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster
from tests.until import WAIT_S

TOPIC = "orders"
PARTITIONS = 4
RECORDS_MIN = 100
BROKERS = (1, 2)


class Rolling:
    """Brokers that are restarted one by one with other listeners."""

    def __init__(self, cluster: LocalCluster, directory: SecureDirectory) -> None:
        self._cluster = cluster
        self._directory = directory
        self._ports = {broker: {"PLAINTEXT": free_port(), "SSL": free_port()} for broker in BROKERS}
        self._running: dict[int, LocalBroker] = {}

    def addresses(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self._ports[broker][listener]}" for broker in BROKERS)

    async def step(self, listeners: tuple[str, ...], between_brokers: str) -> None:
        """Restart the brokers one by one."""
        for number in BROKERS:
            if number in self._running:
                await self._running[number].stop()
            options = {
                **self._directory.certificate_options("broker"),
                "inter_broker_listener": between_brokers,
            }
            ports = {listener: self._ports[number][listener] for listener in listeners}
            log = self._cluster.data_dir / "logs" / f"broker-{number}.log"
            uri = f"{self._cluster.metadata_uri}?client={self._directory.client_file('broker')}"
            self._running[number] = LocalBroker(number, log, uri, ports, 3, options)
            await self._running[number].start()

    async def stop(self) -> None:
        for broker in self._running.values():
            await broker.stop()

    def settings(self, listener: str) -> dict[str, Any]:
        files = self._directory.path
        tls = {
            "ssl.ca.location": str(files / "ca.pem"),
            "ssl.certificate.location": str(files / "client.pem"),
            "ssl.key.location": str(files / "client-key.pem"),
        }
        return {
            "bootstrap.servers": self.addresses(listener),
            "security.protocol": listener,
            "log_level": 0,
            **(tls if listener == "SSL" else {}),
        }


class Producing:
    """A producer that counts what was acknowledged."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 1})
        self._is_stopped = False
        self.errors: list[KafkaError] = []
        self.acknowledged = 0

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)

    async def run(self) -> None:
        sent = 0
        while not self._is_stopped or self.acknowledged < RECORDS_MIN:
            self._producer.produce(
                TOPIC, b"%d" % sent, partition=sent % PARTITIONS, on_delivery=self._note
            )
            sent += 1
            self._producer.poll(0)
            await asyncio.sleep(0.01)
            assert not self.errors
        while len(self._producer):
            self._producer.poll(0)
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._is_stopped = True


@asynccontextmanager
async def producing(settings: Mapping[str, Any]) -> AsyncIterator[Producing]:
    """Produce for the length of the block."""
    load = Producing(settings)
    running = asyncio.create_task(load.run())
    yield load
    load.stop()
    async with asyncio.timeout(WAIT_S):
        await running
    assert load.errors == []


def count_of(settings: Mapping[str, Any]) -> int:
    """Return how many records the topic has."""
    consumer = Consumer({**settings, "group.id": "count"})
    count = 0
    for number in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), WAIT_S)
        count += high - low
    consumer.close()
    return count


@pytest.mark.long
async def test_no_record_fails_while_brokers_change_to_tls(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path / "tls")
    directory.fill()
    bookies = {"tls": "optional", **directory.certificate_options("bookie")}
    async with LocalCluster(3, tmp_path / "data", bookie_options=bookies) as cluster:
        rolling = Rolling(cluster, directory)
        try:
            await rolling.step(("PLAINTEXT",), "PLAINTEXT")
            plain, secure = rolling.settings("PLAINTEXT"), rolling.settings("SSL")
            admin = AdminClient(plain)
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(WAIT_S)
            async with producing(plain) as first:
                await rolling.step(("PLAINTEXT", "SSL"), "PLAINTEXT")
                await rolling.step(("PLAINTEXT", "SSL"), "SSL")
            async with producing(plain) as second, producing(secure) as third:
                await asyncio.sleep(1.0)
            async with producing(secure) as fourth:
                await rolling.step(("SSL",), "SSL")
            total = sum(each.acknowledged for each in (first, second, third, fourth))
            assert count_of(secure) == total
        finally:
            await rolling.stop()
