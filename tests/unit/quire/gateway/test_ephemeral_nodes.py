"""Ephemeral nodes of a gateway's clients: whose they are while writes are in flight, and their
bounds.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.errors import NodeExistsError, NodeNotFoundError, VersionConflictError
from metadata.gateway.errors import GatewayRefusedError
from metadata.ids import Version
from metadata.registry.registrar import ClientRegistration
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.interface import CompareAndSet, Create, Delete
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.gateway.running_gateway import LIMITS, RunningGateway, run_gateway


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    running = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()))
    root = await running.connect()
    await root.create("/clients", b"")
    yield running
    await running.aclose()


async def test_registrations_end_with_their_sessions(gateway: RunningGateway) -> None:
    alice, bob = await gateway.connect("User:alice"), await gateway.connect("User:bob")
    registration = ClientRegistration(alice, random.Random(1))
    await registration.start()
    path = f"/clients/{registration.client_id}"
    assert (await bob.get(path)).ephemeral
    with pytest.raises(GatewayRefusedError):
        await bob.delete(path, Version(0))
    await alice.aclose()
    with pytest.raises(NodeNotFoundError):
        await bob.get(path, fresh=True)


async def test_a_write_in_flight_gives_no_right(gateway: RunningGateway) -> None:
    alice, bob = await gateway.connect("User:alice"), await gateway.connect("User:bob")
    registration = ClientRegistration(alice, random.Random(3))
    await registration.start()
    path = f"/clients/{registration.client_id}"
    stored = await bob.get(path)
    taken = pack_held(HeldNode(b"y" * 16, 1, b"bob"))
    creates = [bob.create(path, taken, ephemeral=True) for _ in range(6)]
    change, removal = (
        bob.compare_and_set(path, taken, stored.version),
        bob.delete(path, stored.version),
    )
    done = await asyncio.gather(*creates, change, removal, return_exceptions=True)
    assert {type(each) for each in done[:6]} == {NodeExistsError}
    assert {type(each) for each in done[6:]} == {GatewayRefusedError}
    assert await bob.get(path, fresh=True) == stored


async def test_nodes_that_are_created_together_are_bounded(gateway: RunningGateway) -> None:
    """Each of them had room when its request came; deciding about its other part takes a read."""
    alice = await gateway.connect("User:alice")
    value = pack_held(HeldNode(b"y" * 16, alice.session_id, b""))
    requests = []
    for number in range(4):
        level = f"/ledgers/000{number}"
        await alice.create(level, b"")
        node = Create(f"/clients/{number}", value, ephemeral=True)
        requests.append(alice.multi([node, Delete(level, Version(0))]))
    made = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(each) for each in made].count(GatewayRefusedError) == 1
    assert len(await alice.children("/clients", fresh=True)) == LIMITS.ephemerals_max == 3


async def test_bounds_of_ephemeral_nodes_and_uncertain_values(gateway: RunningGateway) -> None:
    root = await gateway.connect()
    for number in range(3):
        await root.create(f"/live/{number}", b"", ephemeral=True)
    with pytest.raises(GatewayRefusedError, match="at most 3"):
        await root.create("/live/3", b"", ephemeral=True)
    await root.delete("/live/2", Version(0))
    with pytest.raises(GatewayRefusedError, match="at most 3"):
        await root.multi([Create(f"/live/{name}", b"", ephemeral=True) for name in "ab"])
    await root.create("/live/2", b"", ephemeral=True)
    session = gateway.context.sessions._sessions[root.session_id]
    for _ in range(40):
        with pytest.raises(VersionConflictError):
            await root.compare_and_set("/live/0", b"x", Version(7))
    assert session.ephemerals.values_of("/live/0") == [b""]
    with pytest.raises(NodeExistsError):
        taken = Create("/live/1", b"")
        await root.multi([CompareAndSet("/live/0", b"y", Version(0)), taken])
    assert session.ephemerals.values_of("/live/0") == [b""]
    await root.compare_and_set("/live/0", b"z", Version(0))
    assert session.ephemerals.values_of("/live/0") == [b"z"]
    await root.delete("/live/0", Version(1))
    await root.create("/live/3", b"", ephemeral=True)
