"""Benchmark of topics over TLS, with logins and rights, next to plaintext, in one run.

librdkafka, acks=all, replication 3: producing and consuming 1 KiB records of one partition. Two
clusters of three bookies and a broker, one of them secure; all are up during the complete run, and
the cases take turns. Over TLS the client is a super user with a certificate; the last case logs in
by SCRAM as a user that needs ACLs for each request. Leaves the load to
`benchmarks.brokers.topic_load`, and the cost of ACLs for one Produce to
`benchmarks.brokers.broker_protocol`.

Target: produced over TLS at >= 0.5 of the records/s without it.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from benchmarks.brokers.topics import BOOKIES, RECORDS, Side, put
from benchmarks.measures import interleaved
from benchmarks.runner import Bench, run
from metadata.registry.cluster import open_cluster_store
from metadata.security.acl_store import AclStore
from metadata.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.security.user_store import UserStore
from quire.identity.sasl.credentials import ScramMechanism, new_credential
from quire.local_cluster import LocalCluster

SHARE_WANTED: Final = 0.5
USER: Final = "bench"
PASSWORD: Final = "a password of this run"
PLAIN: Final = "plaintext"
TLS: Final = "TLS"
RIGHTS: Final = "TLS, login and ACLs"


async def _admit(cluster: LocalCluster) -> None:
    """Add the user of the last case, and its rights."""
    rng = Random(os.urandom(16))
    store = await open_cluster_store(cluster.metadata_uri, rng=rng)
    try:
        credential = new_credential(ScramMechanism.SHA_256, PASSWORD, SystemRandom())
        await UserStore(store, rng).add(USER, [credential])
        bindings = [
            AclBinding(
                kind,
                PatternType.LITERAL,
                CLUSTER_NAME if kind is ResourceType.CLUSTER else "*",
                f"User:{USER}",
                "*",
                Operation.ALL,
                Permission.ALLOW,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
        ]
        await AclStore(store, rng).add(bindings)
    finally:
        await store.aclose()


@asynccontextmanager
async def _sides(bench: Bench) -> AsyncIterator[list[Side]]:
    async with AsyncExitStack() as stack:
        without = await stack.enter_async_context(
            LocalCluster(BOOKIES, stack.enter_context(bench.subdirectory()), broker=1)
        )
        secure = await stack.enter_async_context(
            LocalCluster(BOOKIES, stack.enter_context(bench.subdirectory()), broker=1, secure=True)
        )
        await _admit(secure)
        broker, files = secure.brokers[0], Path(secure.certificates.path)
        trusted = f"ssl.ca.location={files / 'ca.pem'}"
        yield [
            Side(PLAIN, without.brokers[0].address),
            Side(
                TLS,
                broker.address,
                client=(
                    "security.protocol=SSL",
                    trusted,
                    f"ssl.certificate.location={files / 'client.pem'}",
                    f"ssl.key.location={files / 'client-key.pem'}",
                ),
            ),
            Side(
                RIGHTS,
                broker.listeners["SASL_SSL"],
                client=(
                    "security.protocol=SASL_SSL",
                    trusted,
                    "sasl.mechanism=SCRAM-SHA-256",
                    f"sasl.username={USER}",
                    f"sasl.password={PASSWORD}",
                ),
            ),
        ]


async def _measure(bench: Bench) -> None:
    report, records = bench.report, bench.size(RECORDS, 5_000)
    async with _sides(bench) as sides:
        for number, name in interleaved([side.name for side in sides], bench.repetitions):
            side = next(known for known in sides if known.name == name)
            topic = f"records-{number}-{sides.index(side)}"
            await put(side, "create", topic)
            await put(side, "produce", topic, count=records // 10)  # warms up
            async with bench.measured(f"{name}: produce"):
                report.sample(f"{name} produce", await put(side, "produce", topic, count=records))
            async with bench.measured(f"{name}: consume"):
                report.sample(f"{name} consume", await put(side, "consume", topic, count=records))
    for way in ("produce", "consume"):
        plain = report.values(f"{PLAIN} {way}", "records_per_s")
        for name in (PLAIN, TLS, RIGHTS):
            report.figure(f"{name} {way}", "records_per_s", "entries_per_s")
        for name in (TLS, RIGHTS):
            case = f"{name} {way}"
            secure = report.values(case, "records_per_s")
            shares = [mine / other for mine, other in zip(secure, plain, strict=True)]
            wanted = SHARE_WANTED if (name, way) == (TLS, "produce") else None
            report.figure(case, "share_of_plain", "ratio", values=shares, at_least=wanted)


if __name__ == "__main__":
    run("security", _measure)
