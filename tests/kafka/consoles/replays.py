"""Secure cluster with a world of topics and groups, and the calls of the consoles in it.

Leaves the checks to the tests.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from metadata.msgpack_fields import unpack_versioned
from metadata.paths import CONTROLLER
from metadata.registry.cluster import open_cluster_store
from metadata.store.ephemeral import unpack_held
from quire.local_cluster import LocalCluster
from tests.kafka.brokers import QUIRE_BROKERS, endpoints_of
from tests.kafka.consoles.go_program import run_go_calls
from tests.kafka.consoles.world import World, made_world
from tests.kafka.endpoint import Endpoint, json_file, properties_file
from tests.kafka.java_process import events, run_java
from tests.support.quire.in_thread import InThread

Line: TypeAlias = dict[str, Any]
"""One call: tool, page, call, result, and figures or error."""
ELECTION_FIELDS: Final = 2


@dataclass(frozen=True, slots=True)
class Cluster:
    """Endpoint of the brokers, and the controller that is elected in ZooKeeper."""

    endpoint: Endpoint
    controller: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a program printed, and what is true."""

    lines: Sequence[Line]
    world: World
    cluster: Cluster

    def figures(self, *calls: str) -> list[Any]:
        """Return the figures of each call of these names; at least one was made."""
        found = [line["figures"] for line in self.lines if line["call"] in calls]
        assert found, f"no call of {calls} has figures"
        return found


@contextmanager
def prepared_cluster() -> Iterator[tuple[Cluster, World]]:
    """Start a secure cluster and make the world in it."""
    with InThread(_cluster()) as cluster, made_world(cluster.endpoint) as world:
        yield cluster, world


@asynccontextmanager
async def _cluster() -> AsyncIterator[Cluster]:
    async with LocalCluster(broker=QUIRE_BROKERS, secure=True) as cluster:
        store = await open_cluster_store(cluster.metadata_uri, rng=Random(1))
        try:
            stored = await store.get(CONTROLLER)
        finally:
            await store.aclose()
        content = unpack_held(CONTROLLER, stored.value).content
        controller = unpack_versioned(CONTROLLER, content, 1, ELECTION_FIELDS)[1]
        assert isinstance(controller, int), controller
        yield Cluster(endpoints_of(cluster).login, controller)


def _run_java_calls(endpoint: Endpoint, world: str) -> str:
    settings = {"bootstrap.servers": endpoint.addresses, **endpoint.java}
    with properties_file(settings) as client:
        return run_java("ConsoleCalls", client, world)


PROGRAMS: Final[dict[str, Callable[[Endpoint, str], str]]] = {
    "franz-go": run_go_calls,
    "Java admin client": _run_java_calls,
}
"""Function that runs each program, by the client library that it uses."""


def replayed(program: str, cluster: Cluster, world: World) -> Replay:
    """Make the calls of a program. Raises UnavailableError, PeerUnavailableError."""
    with json_file(world.names) as names:
        text = PROGRAMS[program](cluster.endpoint, names)
    lines = [dict(event) for event in events(text)]
    return Replay(lines, world, cluster)
