"""What a client that has proved who it is may do at a real broker: nothing without an ACL, that of
the ACL within seconds, and nothing once the ACL is gone.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quire.local.secure_directory import SecureDirectory
from tests.integration.quire.command import RunningCluster, start_cluster
from tests.until import WAIT_S

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    data = tmp_path_factory.mktemp("secure")
    SecureDirectory(data / "tls").fill(clients=("client", "eve"))
    running = start_cluster(data, 3, brokers=1, secure=True)
    secret = data / "bob"
    secret.touch(0o600)
    secret.write_text("a long password\n")
    assert running.run("user", "add", "bob", "--password-file", str(secret)).returncode == 0
    assert running.run("topic", "create", TOPIC).returncode == 0
    yield running
    running.stop()


def common(cluster: RunningCluster, listener: str, protocol: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.told["brokers"][0][listener],
        "security.protocol": protocol,
        "ssl.ca.location": str(tls(cluster) / "ca.pem"),
        "log_level": 0,
    }


def tls(cluster: RunningCluster) -> Path:
    return Path(cluster.told["data"]) / "tls"


def bob(cluster: RunningCluster) -> dict[str, Any]:
    return {
        **common(cluster, "login_address", "SASL_SSL"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": "a long password",
    }


def eve(cluster: RunningCluster) -> dict[str, Any]:
    return {
        **common(cluster, "address", "SSL"),
        "ssl.certificate.location": str(tls(cluster) / "eve.pem"),
        "ssl.key.location": str(tls(cluster) / "eve-key.pem"),
    }


def produced(settings: dict[str, Any]) -> KafkaError | None:
    """Produce one record; return why it was refused, or None."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000, "acks": "all"})
    producer.produce(TOPIC, b"one", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(WAIT_S)
    return outcomes[0]


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize(("who", "name"), [(bob, "bob"), (eve, "eve")])
def test_rights_come_with_an_acl_and_go_with_it(
    cluster: RunningCluster, who: Callable[[RunningCluster], dict[str, Any]], name: str
) -> None:
    settings = who(cluster)
    refused = produced(settings)
    assert refused is not None
    assert refused.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,  # what a client makes of a topic that it is not shown
    )
    admin = AdminClient(settings)
    assert TOPIC not in admin.list_topics(timeout=WAIT_S).topics
    words = (f"User:{name}", "--operation", "WRITE", "--topic", TOPIC)
    assert cluster.run("acl", "add", "--allow", *words).returncode == 0
    until(lambda: produced(settings) is None)
    assert TOPIC in admin.list_topics(timeout=WAIT_S).topics
    assert cluster.run("acl", "remove", "--allow", *words, "--yes").returncode == 0
    until(lambda: produced(settings) is not None)


def test_only_the_cluster_right_creates_topics(cluster: RunningCluster) -> None:
    admin = AdminClient(bob(cluster))
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("mine", 1)])["mine"].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_refusals_are_in_the_audit_log(cluster: RunningCluster) -> None:
    assert produced(bob(cluster)) is not None
    log = (Path(cluster.told["data"]) / "logs" / "broker-1.log").read_text()
    lines = [line for line in log.splitlines() if '"event": "audit"' in line]
    assert any('"who": "User:bob"' in line and '"refused"' in line for line in lines)
