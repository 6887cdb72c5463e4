"""The attacked servers of one secure cluster, and what its clients find there.

One bookie with roles, one broker with logins, one gateway. `alice` is the good client; `mallory` is
the bad one: she has a ledger of her own and a topic that she may read, and no other right. Leaves
what the clients do to `benchmarks.floods.good_clients` and `benchmarks.floods.flooder`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from benchmarks.brokers.produce_request import PRODUCE_VERSION, produce_body
from benchmarks.floods.broker_link import BrokerLink
from benchmarks.floods.flood_job import FloodTarget
from benchmarks.floods.kinds import ENTRIES, ENTRY_BYTES, Role
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    decode_response,
    encode_request,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerConnection
from ledger_client import LedgerClient, Quorum
from ledger_client.digest import LedgerKeys
from metadata.ids import LedgerId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import open_cluster_store
from metadata.security.acl_store import AclStore
from metadata.security.acls import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.security.user_store import UserStore
from quire.identity.sasl.credentials import ScramMechanism, new_credential
from quire.identity.secret_files import read_secret
from quire.local.local_server import LocalServer
from quire.local.secure_directory import CLIENT_NAME, SecureDirectory
from quire.local_cluster import BOOKIE_SECURITY, TLS_DIRECTORY, LocalCluster

GOOD: Final = "alice"
BAD: Final = "mallory"
ONE: Final = Quorum(ensemble=1, write=1, ack=1)
GATEWAY_READY_S: Final = 60.0
TOPIC: Final = "orders"
LARGE_TOPIC: Final = "large"
LARGE_RECORDS: Final = 60
"""As many of ENTRY_BYTES as a broker returns at once, and a few more."""
CREATE_VERSION: Final = 7


@dataclass(frozen=True, slots=True)
class FloodedCluster:
    """The running servers."""

    cluster: LocalCluster
    gateway: LocalServer
    target: FloodTarget

    @property
    def directory(self) -> SecureDirectory:
        """Certificates and passwords."""
        return self.cluster.certificates

    def server(self, role: Role) -> LocalServer:
        """Return an attacked server."""
        servers = {
            Role.BOOKIE: self.cluster.bookies[0],
            Role.BROKER: self.cluster.brokers[0],
            Role.GATEWAY: self.gateway,
        }
        return servers[role]

    def uri(self, name: str) -> str:
        """Return the address of the metadata for a client."""
        return uri_for(self.cluster, name)

    def current_target(self) -> FloodTarget:
        """Return the target with the gateway's address, which a new start changes."""
        return replace(self.target, gateway=self.gateway.address)


@asynccontextmanager
async def flooded_cluster(directory: Path) -> AsyncIterator[FloodedCluster]:
    """Start everything; stop it at the end of the block."""
    SecureDirectory(directory / TLS_DIRECTORY).fill(clients=(CLIENT_NAME, GOOD, BAD))
    async with LocalCluster(1, directory, broker=1, secure=True) as cluster:
        gateway = _gateway(cluster)
        await gateway.start()
        try:
            await _admit(cluster)
            topic_id = await _fill_topics(cluster)
            ledger_id, key = await _fill_ledger(cluster)
            files, bookie = cluster.certificates, cluster.bookies[0]
            target = FloodTarget(
                client_file=files.client_file(BAD),
                user=BAD,
                password_file=files.password_file(BAD),
                bookie_id=bookie.id,
                bookie=bookie.address,
                admin=bookie.admin_url.rpartition("/")[2],
                broker=login_address(cluster),
                gateway=gateway.address,
                ledger_id=ledger_id,
                ledger_key=key.hex(),
                topic_id=topic_id,
            )
            yield FloodedCluster(cluster, gateway, target)
        finally:
            await gateway.stop()


def uri_for(cluster: LocalCluster, name: str) -> str:
    """Return the address of the metadata for a client."""
    address, _, _ = cluster.metadata_uri.partition("?")
    return f"{address}?client={cluster.certificates.client_file(name)}"


def login_address(cluster: LocalCluster) -> str:
    """Return the address of the broker's listener with logins."""
    return cluster.brokers[0].listeners["SASL_SSL"]


def _gateway(cluster: LocalCluster) -> LocalServer:
    secure = cluster.certificates.certificate_options("gateway")
    options = {name: value for name, value in BOOKIE_SECURITY.items() if name != "authorizer"}
    return LocalServer(
        ("gateway", "run"),
        "gateway",
        {"metadata": uri_for(cluster, "gateway"), "port": "0"},
        {**secure, **options},
        cluster.data_dir / "logs" / "gateway.log",
        ready_timeout_s=GATEWAY_READY_S,
    )


async def _admit(cluster: LocalCluster) -> None:
    """Add both users, and their rights on topics."""
    rng = Random(os.urandom(16))
    store = await open_cluster_store(cluster.metadata_uri, rng=rng)
    try:
        users = UserStore(store, rng)
        for name in (GOOD, BAD):
            password = read_secret(cluster.certificates.password_file(name))
            credential = new_credential(ScramMechanism.SHA_512, password, SystemRandom())
            await users.add(name, [credential])
        rules = ((GOOD, TOPIC, Operation.WRITE), (BAD, LARGE_TOPIC, Operation.READ))
        await AclStore(store, rng).add([_allow(*rule) for rule in rules])
    finally:
        await store.aclose()


def _allow(user: str, topic: str, operation: Operation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        topic,
        f"User:{user}",
        "*",
        operation,
        Permission.ALLOW,
    )


async def _fill_topics(cluster: LocalCluster) -> str:
    """Create both topics, and fill the large one; return its id."""
    files = cluster.certificates
    link = BrokerLink(login_address(cluster), files.client_file(CLIENT_NAME))
    access = link.access(CLIENT_NAME, files.password_file(CLIENT_NAME))
    connection = await link.calls(access)
    try:
        await _create(connection, TOPIC)
        topic_id = await _create(connection, LARGE_TOPIC)
        rng = Random(1)
        for _ in range(LARGE_RECORDS):
            body = produce_body(LARGE_TOPIC.encode(), [rng.randbytes(ENTRY_BYTES)])
            await connection.call(ApiKey.PRODUCE, PRODUCE_VERSION, body)
    finally:
        connection.close("the topics are filled")
    return topic_id


async def _create(connection: PeerConnection, name: str) -> str:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
    body = bytes(encode_request(request, CREATE_VERSION))
    answer = await connection.call(ApiKey.CREATE_TOPICS, CREATE_VERSION, body)
    response = decode_response(ApiKey.CREATE_TOPICS, CREATE_VERSION, answer)
    assert isinstance(response, CreateTopicsResponse)
    (topic,) = response.topics
    assert not topic.error_code, topic
    return str(topic.topic_id.hex)


async def _fill_ledger(cluster: LocalCluster) -> tuple[LedgerId, bytes]:
    """Write the bad client's own ledger; return its id and its key."""
    rng = Random(1)
    async with LedgerClient(uri_for(cluster, BAD)) as client:
        async with client.create_ledger(ONE) as ledger:
            for _ in range(ENTRIES):
                await ledger.append(rng.randbytes(ENTRY_BYTES))
        ledger_id = LedgerId(ledger.id)
    store = await open_cluster_store(cluster.metadata_uri, rng=rng)
    try:
        metadata, _ = await LedgerStore(store, rng, lambda: 0).get(ledger_id)
    finally:
        await store.aclose()
    return ledger_id, LedgerKeys.of(metadata, b"").master_key
