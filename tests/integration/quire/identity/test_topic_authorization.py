"""Access control lists on a cluster of real processes, by stock clients and by `quire acl`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from quire.errors import ExitCode
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire

pytestmark = pytest.mark.asyncio(loop_scope="module")
ME = "User:ANONYMOUS"
CALL_S = 20.0
TOPIC = "orders"
REFUSED_TOPIC, REFUSED_CLUSTER, DISABLED = 29, 31, 54
CHANGES_MAX = 100
"""Maximum number of checks whether every broker applies a change."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    data: Path = tmp_path_factory.mktemp("authorization")
    options = {"authorizer": "true", "super_users": "User:admin"}
    async with LocalCluster(1, data, broker=2, broker_options=options) as running:
        yield running


def admin_of(cluster: LocalCluster, broker: int = 0) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.brokers[broker].address})


async def failure_of(call: Callable[[], object]) -> int:
    """Return the error code of a blocking call; 0 for success."""
    try:
        await asyncio.to_thread(call)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


async def quire(cluster: LocalCluster, *words: str) -> bytes:
    uri = cluster.metadata_uri
    done = await asyncio.to_thread(run_quire, "acl", *words, metadata=uri)
    assert done.returncode == ExitCode.DONE, done.stderr
    return done.stdout


async def applied(call: Callable[[], object], code: int) -> None:
    """Repeat a call until it ends with an error code."""
    found = None
    for _ in range(CHANGES_MAX):
        found = await failure_of(call)
        if found == code:
            return
        await asyncio.sleep(0.1)
    assert found == code


def binding(operation: AclOperation, name: str = TOPIC) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        ME,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def chosen() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.ANY,
        ME,
        "*",
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def create_acls(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings), request_timeout=CALL_S).values():
        future.result(CALL_S)


def produce(address: str) -> None:
    """Append one record. Raises KafkaException."""
    failures = []
    settings = {"bootstrap.servers": address, "message.timeout.ms": 15_000}
    producer = Producer(settings)
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: failures.append(error))
    producer.flush(CALL_S)
    if failures[0] is not None:
        raise KafkaException(failures[0])


def consume(address: str) -> None:
    """Read one record. Raises KafkaException."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(CALL_S)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        assert message.value() == b"value"
    finally:
        consumer.close()


def look(address: str) -> None:
    """Ask for the metadata of the topic. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": address})
    error = admin.list_topics(TOPIC, CALL_S).topics[TOPIC].error
    if error is not None:
        raise KafkaException(error)


async def test_stock_clients_change_and_meet_the_lists(cluster: LocalCluster) -> None:
    admin, other = admin_of(cluster), admin_of(cluster, 1)
    addresses = [broker.address for broker in cluster.brokers]

    def describe() -> list[AclBinding]:
        found = admin.describe_acls(chosen(), request_timeout=CALL_S).result(CALL_S)
        return sorted(found, key=repr)

    # librdkafka returns an empty list when describing is refused, so creating shows the right.
    unused = binding(AclOperation.READ, "unused")
    assert await failure_of(lambda: create_acls(admin, unused)) == REFUSED_CLUSTER
    await quire(cluster, "add", "--allow", ME, "--cluster", "--operation", "ALL")
    await quire(cluster, "add", "--allow", ME, "--group", "unused", "--operation", "READ")
    await applied(lambda: create_acls(admin, unused), 0)
    await applied(lambda: create_acls(other, unused), 0)

    def create_topic() -> None:
        made = admin.create_topics([NewTopic(TOPIC, 1, 1)], request_timeout=CALL_S)
        made[TOPIC].result(CALL_S)

    await asyncio.to_thread(create_topic)
    assert await failure_of(lambda: produce(addresses[0])) == REFUSED_TOPIC
    reads, writes = binding(AclOperation.READ), binding(AclOperation.WRITE)
    await asyncio.to_thread(create_acls, admin, reads, writes)
    assert await asyncio.to_thread(describe) == sorted([reads, writes], key=repr)
    for address in addresses:
        await applied(partial(produce, address), 0)
        await applied(partial(consume, address), 0)

    def delete() -> list[AclBinding]:
        (future,) = admin.delete_acls([chosen()], request_timeout=CALL_S).values()
        return sorted(future.result(CALL_S), key=repr)

    assert await asyncio.to_thread(delete) == sorted([reads, writes], key=repr)
    for address in addresses:
        await applied(partial(produce, address), REFUSED_TOPIC)
        await applied(partial(look, address), REFUSED_TOPIC)


async def test_the_command_lists_and_removes(cluster: LocalCluster) -> None:
    await quire(cluster, "add", "--deny", "User:x", "--topic", "z*", "--operation", "ALL")
    assert b"User:x" in await quire(cluster, "list", "--topic", "z*")
    await quire(cluster, "remove", "--deny", "User:x", "--yes")
    assert b"User:x" not in await quire(cluster, "list")


async def test_without_an_authorizer_clients_learn_so(tmp_path: Path) -> None:
    async with LocalCluster(1, tmp_path, broker=1) as cluster:
        admin = admin_of(cluster)
        code = await failure_of(lambda: create_acls(admin, binding(AclOperation.READ)))
        assert code == DISABLED
