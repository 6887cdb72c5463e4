"""Brokers of a secure cluster: stock clients with a certificate are served, others are refused."""

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from quire.identity.client_file import read_client_file
from quire.local.secure_directory import SecureDirectory
from tests.integration.quire.command import RunningCluster, start_cluster
from tests.support.broker_layer.refused_client import refusal_of
from tests.until import WAIT_S

LINES = b"one\ntwo\nthree\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("secure"), 3, brokers=2, secure=True)
    yield running
    running.stop()


def certificates(cluster: RunningCluster) -> SecureDirectory:
    return SecureDirectory(Path(cluster.told["data"]) / "tls")


def addresses(cluster: RunningCluster) -> str:
    return ",".join(each["address"] for each in cluster.told["brokers"])


def with_certificate(cluster: RunningCluster, directory: SecureDirectory) -> dict[str, Any]:
    """Return librdkafka's settings for the client of a directory."""
    return {
        "bootstrap.servers": addresses(cluster),
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates(cluster).path / "ca.pem"),
        "ssl.certificate.location": str(directory.path / "client.pem"),
        "ssl.key.location": str(directory.path / "client-key.pem"),
    }


def topics_of(settings: dict[str, Any]) -> set[str]:
    return set(AdminClient(settings).list_topics(timeout=WAIT_S).topics)


def test_a_client_with_a_certificate_is_served(cluster: RunningCluster) -> None:
    assert cluster.run("topic", "create", "greetings", "--partitions", "4").returncode == 0
    assert cluster.run("topic", "produce", "greetings", stdin=LINES).returncode == 0
    done = cluster.run("topic", "consume", "greetings")
    assert sorted(done.stdout.splitlines()) == sorted(LINES.splitlines())
    assert "greetings" in topics_of(with_certificate(cluster, certificates(cluster)))


def test_brokers_ask_each_other_over_tls(cluster: RunningCluster) -> None:
    """The coordinator of transactions asks the leaders of the partitions to write markers."""
    producer = Producer(
        {**with_certificate(cluster, certificates(cluster)), "transactional.id": "t"}
    )
    cluster.run("topic", "create", "paid", "--partitions", "4")
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(4):
        producer.produce("paid", b"x", partition=partition)
    producer.commit_transaction(30)
    done = cluster.run("topic", "consume", "paid", "--committed")
    assert done.stdout.splitlines() == [b"x"] * 4


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_client_without_a_certificate_is_refused(cluster: RunningCluster, protocol: str) -> None:
    settings = {
        "bootstrap.servers": addresses(cluster),
        "security.protocol": protocol,
        "ssl.ca.location": str(certificates(cluster).path / "ca.pem"),
    }
    assert refusal_of(settings)


def test_a_certificate_of_another_authority_is_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    other = SecureDirectory(tmp_path)
    other.fill()
    assert refusal_of(with_certificate(cluster, other))


def test_the_admin_port_of_a_broker_needs_a_certificate(cluster: RunningCluster) -> None:
    url = cluster.told["brokers"][0]["admin_url"]
    trusting = ssl.create_default_context(cafile=str(certificates(cluster).path / "ca.pem"))
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{url}/metrics", context=trusting)
    assert refused.value.code == 401
    refused.value.close()
    own = read_client_file(certificates(cluster).client_file("client")).context
    with urllib.request.urlopen(f"{url}/metrics", context=own) as answer:
        assert b"quire_broker_tls_certificate_expires_seconds" in answer.read()
