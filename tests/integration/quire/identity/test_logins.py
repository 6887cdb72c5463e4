"""Clients of brokers that log in with a password: they are served, others are refused with a reason
that a person understands.
"""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from quire.identity.secret_files import read_secret
from quire.local.secure_directory import SecureDirectory
from tests.integration.quire.command import RunningCluster, run_quire, start_cluster
from tests.support.broker_layer.refused_client import refusal_of
from tests.until import WAIT_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("secure"), 3, brokers=1, secure=True)
    yield running
    running.stop()


def directory(cluster: RunningCluster) -> SecureDirectory:
    return SecureDirectory(Path(cluster.told["data"]) / "tls")


def password_of_client(cluster: RunningCluster) -> str:
    return read_secret(directory(cluster).password_file("client"))


def login(
    cluster: RunningCluster, user: str, password: str, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, Any]:
    """Return librdkafka's settings."""
    return {
        "bootstrap.servers": cluster.told["brokers"][0]["login_address"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory(cluster).path / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_the_password_produces_and_consumes(
    cluster: RunningCluster, mechanism: str
) -> None:
    settings = login(cluster, "client", password_of_client(cluster), mechanism)
    topic = f"orders-{mechanism}"
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)
    producer = Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, b"one")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    until = time.monotonic() + WAIT_S
    values: list[bytes | None] = []
    while not values and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    assert values == [b"one"]


def test_kafka_python_logs_in(cluster: RunningCluster) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.told["brokers"][0]["login_address"],
        security_protocol="SASL_SSL",
        ssl_cafile=str(directory(cluster).path / "ca.pem"),
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="client",
        sasl_plain_password=password_of_client(cluster),
    )
    assert isinstance(consumer.topics(), set)
    consumer.close()


def test_wrong_passwords_and_unknown_users_are_refused_alike(cluster: RunningCluster) -> None:
    wrong = refusal_of(login(cluster, "client", "wrong"))
    assert "authentication failed: check the user and the password" in wrong
    unknown = refusal_of(login(cluster, "mallory", "wrong"))
    assert "authentication failed: check the user and the password" in unknown


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    cluster: RunningCluster,
) -> None:
    reason = refusal_of(login(cluster, "client", password_of_client(cluster), "PLAIN"))
    assert "PLAIN" in reason
    assert "SCRAM-SHA-512" in reason


def test_a_client_without_a_login_is_refused(cluster: RunningCluster) -> None:
    settings = login(cluster, "client", "")
    settings["security.protocol"] = "SSL"
    for name in [setting for setting in settings if setting.startswith("sasl")]:
        del settings[name]
    assert "brokers are down" in refusal_of(settings)


def test_a_removed_user_is_cut_off_while_it_is_connected(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "bob"
    secret.touch(0o600)
    secret.write_text("a long password\n")
    assert cluster.run("user", "add", "bob", "--password-file", str(secret)).returncode == 0
    admin = AdminClient(login(cluster, "bob", "a long password"))
    until = time.monotonic() + WAIT_S
    while True:  # the broker learns of the user by a watch
        try:
            admin.list_topics(timeout=5)
            break
        except KafkaException:
            assert time.monotonic() < until
    assert cluster.run("user", "remove", "bob").returncode == 0
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            admin.list_topics(timeout=2)
        except KafkaException:
            return
        time.sleep(0.2)
    raise AssertionError("the removed user is still served")


def test_nothing_but_a_login_is_served_before_it(cluster: RunningCluster) -> None:
    """Metadata before the login closes the connection, without an answer."""
    host, port = cluster.told["brokers"][0]["login_address"].rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(directory(cluster).path / "ca.pem"))
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        body = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(1) == b""


def test_commands_log_in_with_the_clients_file(cluster: RunningCluster, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text(
        f'[tls]\nauthorities = "{directory(cluster).path}/ca.pem"\n'
        '[sasl]\nmechanism = "SCRAM-SHA-512"\nuser = "client"\n'
        f'password_file = "{directory(cluster).password_file("client")}"\n'
    )
    uri = f"{cluster.metadata.partition('?')[0]}?client={tmp_path}/client.toml"
    words = ("--listener", "SASL_SSL", "--metadata", uri)
    assert run_quire("topic", "create", "notes", *words).returncode == 0
    assert run_quire("topic", "produce", "notes", *words, stdin=b"one\n").returncode == 0
    assert run_quire("topic", "consume", "notes", *words).stdout == b"one\n"
