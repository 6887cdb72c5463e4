"""Brokers with logins and an authorizer: one of Quire's, or an Apache Kafka.

Leaves starting them to `quire.local_cluster` and `tests.kafka.apache_kafka`.

Format: both have a listener with SASL_SSL and SCRAM-SHA-512, certificates of a development
authority in PEM, and one super user, whose password is in a file. Kafka's controller uses a
listener without a login, whose clients are super users too.
"""

import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metadata.store.embedded_ports import HOST, free_port
from quire.identity.secret_files import read_secret
from quire.local.secure_directory import CLIENT_NAME, SecureDirectory
from quire.local_cluster import LocalCluster
from tests.kafka.apache_kafka import NodeOptions, apache_kafka

MECHANISM: Final = "SCRAM-SHA-512"
REAUTHENTICATION_MS: Final = 3_600_000
LOGIN_LISTENER: Final = "CLIENTS"
QUIRE_OPTIONS: Final = {
    "sasl_enabled_mechanisms": MECHANISM,
    "connections_max_reauth_ms": str(REAUTHENTICATION_MS),
}


@dataclass(frozen=True, slots=True)
class SecureBroker:
    """Address of a listener with logins, and the super user of the broker."""

    address: str
    context: ssl.SSLContext
    admin: str
    password: str


@asynccontextmanager
async def secure_broker(which: str) -> AsyncIterator[SecureBroker]:
    """Start a broker: `which` is "kafka" or "quire". Raises PeerUnavailableError, ValueError."""
    match which:
        case "kafka":
            async with _secure_kafka() as broker:
                yield broker
        case "quire":
            options = QUIRE_OPTIONS
            async with LocalCluster(broker=1, secure=True, broker_options=options) as cluster:
                address = cluster.brokers[0].listeners["SASL_SSL"]
                yield _described(cluster.certificates, address)
        case _:
            raise ValueError(f"{which!r} cannot be started: use quire or kafka")


def _described(directory: SecureDirectory, address: str) -> SecureBroker:
    authority = directory.certificate_options("broker")["tls_ca_file"]
    context = ssl.create_default_context(cafile=authority)
    return SecureBroker(
        address, context, CLIENT_NAME, read_secret(directory.password_file(CLIENT_NAME))
    )


@asynccontextmanager
async def _secure_kafka() -> AsyncIterator[SecureBroker]:
    path = Path(tempfile.mkdtemp(prefix="quire-kafka-tls-"))
    try:
        directory = SecureDirectory(path)
        directory.fill()
        port = free_port()
        broker = _described(directory, f"{HOST}:{port}")
        async with apache_kafka(_node_options(directory, broker)):
            yield broker
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _node_options(directory: SecureDirectory, broker: SecureBroker) -> NodeOptions:
    files = {name: Path(path) for name, path in directory.certificate_options("broker").items()}
    store = directory.path / "kafka-store.pem"
    store.write_bytes(files["tls_key_file"].read_bytes() + files["tls_cert_file"].read_bytes())
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    own = f"listener.name.{LOGIN_LISTENER.lower()}"
    protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LOGIN_LISTENER}:SASL_SSL"
    return NodeOptions(
        listeners={LOGIN_LISTENER: broker.address},
        settings={
            "listener.security.protocol.map": protocols,
            "auto.create.topics.enable": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{broker.admin};User:ANONYMOUS",
            "sasl.enabled.mechanisms": MECHANISM,
            f"{own}.{MECHANISM.lower()}.sasl.jaas.config": login,
            f"{own}.{MECHANISM.lower()}.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files["tls_ca_file"]),
            "ssl.client.auth": "none",
        },
        format_arguments=[
            "--add-scram",
            f"{MECHANISM}=[name={broker.admin},password={broker.password}]",
        ],
    )
