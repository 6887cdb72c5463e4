"""Clients of a gateway with real stores of ledgers and chains: what works, and what is refused."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from metadata.errors import (
    ChainNotFoundError,
    NodeExistsError,
    StoreRefusedError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.gateway.errors import GatewayRefusedError
from metadata.gateway.opening import open_store
from metadata.gateway.store import GatewayMetadataStore
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.chain import LinkedLedger
from metadata.ledgers.chain_owner import OWNER_CODEC
from metadata.ledgers.chain_store import ChainStore, Publication
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import LEDGER_IDS, REPAIR_KEY, USERS, chain_owner_path, ledger_path
from metadata.registry.registrar import ClientRegistration
from metadata.security.ledger_roles import (
    GrantedRights,
    LedgerGrant,
    LedgerRole,
    parse_resource,
)
from metadata.store.interface import (
    CompareAndSet,
    Create,
    MetadataStore,
    Operation,
    SessionState,
    Stored,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.number_blocks import pack_block
from tests.support.gateway.running_gateway import LIMITS, RunningGateway, run_gateway
from tests.support.metadata.samples import A, B, D, open_ledger, token
from tests.support.metadata.scripted_faults import ScriptedFaults, reach
from tests.until import until

ALICE, BOB = "User:alice", "User:bob"
LINKED = LinkedLedger(LedgerId(1), 1)


def ledgers(store: MetadataStore) -> LedgerStore:
    return LedgerStore(store, random.Random(1), lambda: 5)


def chains(store: MetadataStore) -> ChainStore:
    return ChainStore(store, random.Random(2), lambda: 5)


def granted(role: LedgerRole, resource: str) -> GrantedRights:
    return GrantedRights([LedgerGrant(role, parse_resource(resource))])


@pytest.fixture
def server() -> MemoryMetadataServer:
    return MemoryMetadataServer()


@pytest.fixture
async def gateway(server: MemoryMetadataServer) -> AsyncIterator[RunningGateway]:
    running = await run_gateway(MemoryMetadataStore(server))
    yield running
    await running.aclose()


@pytest.fixture
async def alice(gateway: RunningGateway) -> GatewayMetadataStore:
    return await gateway.connect(ALICE)


@pytest.fixture
async def bob(gateway: RunningGateway) -> GatewayMetadataStore:
    return await gateway.connect(BOB)


async def new_ledger(store: MetadataStore, owner: str) -> LedgerId:
    ledger_id = await LedgerIdAllocator(store, random.Random(3)).allocate()
    await ledgers(store).create(replace(open_ledger(ledger_id), owner=owner))
    return ledger_id


async def test_an_owner_does_all_with_its_ledger(alice: GatewayMetadataStore) -> None:
    mine = ledgers(alice)
    ledger_id = await new_ledger(alice, ALICE)
    metadata, version = await mine.get(ledger_id, fresh=True)
    changed = metadata.with_ensemble_change(EntryId(4), (A, B, D), token(5))
    version = await mine.compare_and_set(changed, version)
    await mine.compare_and_set(changed.with_closed(EntryId(9), 90, token(6)), version)
    assert [each async for each in mine.list_ledger_ids()] == [ledger_id]
    assert await mine.delete(ledger_id)
    assert not await alice.children("/ledgers")
    chosen = replace(open_ledger(10**9), owner=ALICE)
    await mine.create(chosen, is_chosen=True)
    assert await mine.delete(chosen.ledger_id)
    with pytest.raises(NodeExistsError):
        await mine.create(chosen, is_chosen=True)


async def test_others_change_nothing_of_it(
    gateway: RunningGateway, alice: GatewayMetadataStore, bob: GatewayMetadataStore
) -> None:
    ledger_id = await new_ledger(alice, ALICE)
    theirs = ledgers(bob)
    metadata, version = await theirs.get(ledger_id, fresh=True)
    for change in (
        metadata.with_closed(EntryId(1), 1, token(5)),
        metadata.with_recovery_begun(token(5)),
        replace(metadata, owner=BOB),
    ):
        with pytest.raises(GatewayRefusedError, match="User:bob"):
            await theirs.compare_and_set(change, version)
    with pytest.raises(GatewayRefusedError, match="delete ledger"):
        await theirs.delete(ledger_id)
    with pytest.raises(GatewayRefusedError):
        await bob.multi([CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 2), Version(0))])
    assert await theirs.get(ledger_id, fresh=True) == (metadata, version)
    assert gateway.counters.requests_refused == {"read": 0, "write": 5}
    gateway.granted[BOB] = granted(LedgerRole.RECOVERER, f"ledger:{ledger_id}")
    await theirs.compare_and_set(metadata.with_recovery_begun(token(5)), version)


async def test_a_right_that_ends_while_a_request_is_decided_does_not_count(
    gateway: RunningGateway,
    server: MemoryMetadataServer,
    alice: GatewayMetadataStore,
    bob: GatewayMetadataStore,
) -> None:
    ledger_id = await new_ledger(alice, ALICE)
    metadata, version = await ledgers(bob).get(ledger_id, fresh=True)
    gateway.granted[BOB] = granted(LedgerRole.RECOVERER, f"ledger:{ledger_id}")
    server.faults = faults = ScriptedFaults(reach(ledger_path(ledger_id)))

    async def revoke() -> None:
        del gateway.granted[BOB]

    faults.meanwhile = revoke
    with pytest.raises(GatewayRefusedError):
        await ledgers(bob).compare_and_set(metadata.with_recovery_begun(token(5)), version)
    assert await ledgers(alice).get(ledger_id, fresh=True) == (metadata, version)


async def test_an_id_is_used_by_the_session_that_allocated_it(
    gateway: RunningGateway, alice: GatewayMetadataStore, bob: GatewayMetadataStore
) -> None:
    ledger_id = await new_ledger(alice, ALICE)
    await ledgers(alice).delete(ledger_id)
    with pytest.raises(NodeExistsError):
        await ledgers(bob).create(replace(open_ledger(ledger_id), owner=BOB))
    allocator = LedgerIdAllocator(alice, random.Random(3))
    before = await allocator.allocate()
    sessions = gateway.context.sessions
    gateway.principals[:] = [ALICE]
    first = alice.session_id
    sessions.end(sessions._sessions[first])
    await until(lambda: alice.session_id != first)
    stale = await allocator.allocate()
    assert stale == before + 1
    with pytest.raises(NodeExistsError):
        await ledgers(alice).create(replace(open_ledger(stale), owner=ALICE))
    allocator.leave_block()
    after = await allocator.allocate()
    assert after > stale + 1
    await ledgers(alice).create(replace(open_ledger(after), owner=ALICE))


async def test_secrets_are_read_by_super_users_alone(
    gateway: RunningGateway, alice: GatewayMetadataStore
) -> None:
    root = await gateway.connect()
    await root.create(REPAIR_KEY, b"secret")
    assert (await root.get(REPAIR_KEY)).value == b"secret"
    for call in (alice.get(REPAIR_KEY), alice.children(USERS), alice.get(REPAIR_KEY, agreed=True)):
        with pytest.raises(GatewayRefusedError):
            await call
    called = asyncio.Event()
    alice.watch_value(REPAIR_KEY, called.set)
    await root.compare_and_set(REPAIR_KEY, b"other", Version(0))
    await until(lambda: gateway.counters.requests_refused["read"] == 4)
    assert not called.is_set()


async def test_a_client_without_a_principal_only_reads(gateway: RunningGateway) -> None:
    anyone = await gateway.connect("")
    assert await anyone.children("/ledgers") == []
    with pytest.raises(GatewayRefusedError, match="without a principal"):
        await anyone.create("/ledgers/0000", b"")
    with pytest.raises(GatewayRefusedError):
        await ClientRegistration(anyone, random.Random(1)).start()


async def test_the_creator_of_a_chain_owns_it(
    gateway: RunningGateway,
    server: MemoryMetadataServer,
    alice: GatewayMetadataStore,
    bob: GatewayMetadataStore,
) -> None:
    mine, theirs = chains(alice), chains(bob)
    await new_ledger(alice, ALICE)
    await mine.create("orders")
    path = chain_owner_path("orders")
    assert OWNER_CODEC.unpack(path, (await bob.get(path)).value) == ALICE
    publication = Publication((LINKED,), "job", 1)
    with pytest.raises(GatewayRefusedError, match="writer chain:orders"):
        await theirs.publish("orders", publication)
    assert (await mine.publish("orders", publication)).is_new
    gateway.granted[BOB] = granted(LedgerRole.WRITER, "chain:orders")
    assert not (await theirs.publish("orders", publication)).is_new
    assert (await theirs.publish("orders", Publication((LINKED,), "job", 2))).index == 1
    with pytest.raises(GatewayRefusedError):
        await theirs.trim("orders", 1)
    with pytest.raises(GatewayRefusedError):
        await theirs.delete("orders")
    head = await mine.trim("orders", 1)
    await mine.drop_trimmed("orders", head.first_index, await mine.life("orders"))
    await mine.delete("orders")
    assert await alice.children("/chains") == []
    await theirs.create("orders")
    with pytest.raises(GatewayRefusedError):
        await mine.delete("orders")


async def test_another_client_completes_a_deletion(
    alice: GatewayMetadataStore, bob: GatewayMetadataStore
) -> None:
    mine = chains(alice)
    await mine.create("orders")
    await mine._change("orders", lambda head, one: head.with_deletion(one))
    with pytest.raises(ChainNotFoundError):
        await mine.head("orders")
    await chains(bob).create("orders")
    path = chain_owner_path("orders")
    assert OWNER_CODEC.unpack(path, (await bob.get(path)).value) == BOB


class Interfering(MemoryMetadataStore):
    """A store in which another client changes a ledger right before each multi."""

    def __init__(self, server: MemoryMetadataServer) -> None:
        super().__init__(server)
        self.other = MemoryMetadataStore(server)
        self.change: tuple[str, bytes] | None = None

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        if self.change is not None:
            (path, value), self.change = self.change, None
            stored = await self.other.get(path, fresh=True)
            await self.other.compare_and_set(path, value, stored.version)
        return await super().multi(operations)


async def test_a_change_after_the_decision_makes_the_write_fail(
    server: MemoryMetadataServer,
) -> None:
    store = Interfering(server)
    gateway = await run_gateway(store)
    alice = await gateway.connect(ALICE)
    ledger_id = await new_ledger(alice, ALICE)
    metadata, version = await ledgers(alice).get(ledger_id)
    recovering = metadata.with_recovery_begun(token(8))
    store.change = (ledger_path(ledger_id), encode_ledger_metadata(recovering))
    with pytest.raises(VersionConflictError):
        await ledgers(alice).compare_and_set(metadata.with_closed(EntryId(1), 1, token(9)), version)
    assert (await ledgers(alice).get(ledger_id, fresh=True))[0] == recovering
    await gateway.aclose()
    await store.other.aclose()


class Flickering(MemoryMetadataStore):
    """A store that reads the names of a chain's life once before the chain is there."""

    is_early = False

    def __init__(self, server: MemoryMetadataServer) -> None:
        super().__init__(server)
        self.sent: list[Operation] = []

    @override
    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        if self.is_early and path.endswith("/creation"):
            self.is_early = False
            return []
        return await super().children(path, fresh=fresh, agreed=agreed)

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        self.sent = list(operations)
        return await super().multi(operations)


async def test_a_chain_that_appears_during_a_decision_is_checked(
    server: MemoryMetadataServer,
) -> None:
    store = Flickering(server)
    gateway = await run_gateway(store)
    alice = await gateway.connect(ALICE)
    await chains(alice).create("orders")
    (life,) = await chains(alice).life("orders")
    store.is_early = True
    await alice.create("/chains/orders/links", b"", make_parents=False)
    assert store.sent == [life, Create("/chains/orders/links", b"")]
    await gateway.aclose()


async def test_a_silent_client_loses_its_nodes_and_no_other(gateway: RunningGateway) -> None:
    root = await gateway.connect()
    store = await gateway.connect(session_timeout_s=1.0)
    await store.create("/live/a", b"1", ephemeral=True)
    await store.create("/live/b", b"1", ephemeral=True)
    session = gateway.context.sessions._sessions[store.session_id]
    stored = await root.get("/live/b", fresh=True)
    await root.compare_and_set("/live/b", b"of another", stored.version)
    for task in store._session._tasks:
        task.cancel()
    connection = store._connection
    assert connection is not None
    connection.abort()
    await until(lambda: session.is_over)
    await until(lambda: not gateway.context.sessions._ends)
    assert await root.children("/live", fresh=True) == ["b"]
    assert await root.get("/live/b") == Stored(b"of another", Version(1), ephemeral=True)
    assert gateway.counters.sessions_expired == 1


async def test_the_end_of_the_gateways_session_ends_all(
    gateway: RunningGateway, alice: GatewayMetadataStore
) -> None:
    states: list[SessionState] = []
    alice.on_session(states.append)
    first = alice.session_id
    assert isinstance(gateway.store, MemoryMetadataStore)
    gateway.store.expire()
    await until(lambda: SessionState.SUSPENDED in states)
    assert gateway.counters.sessions_expired == 1
    await until(lambda: alice.session_id != first)
    assert SessionState.EXPIRED in states[: states.index(SessionState.CONNECTED)]


async def test_a_silent_service_expires_the_session(gateway: RunningGateway) -> None:
    store = await gateway.connect(session_timeout_s=1.0)
    states: list[SessionState] = []
    store.on_session(states.append)
    assert isinstance(gateway.store, MemoryMetadataStore)
    gateway.store.suspend()
    await until(lambda: SessionState.EXPIRED in states)
    assert gateway.store.session_state is SessionState.SUSPENDED, "the client's clock came first"
    gateway.store.resume()
    await until(lambda: store.session_state is SessionState.CONNECTED)


async def test_watches_are_bounded_without_a_connection_too(gateway: RunningGateway) -> None:
    """Else the gateway cuts each later connection of the client at its last watch."""
    store = await gateway.connect()
    store._session.cut()
    await until(lambda: store.session_state is SessionState.SUSPENDED)
    with pytest.raises(StoreRefusedError, match="which is the gateway's limit"):
        for number in range(LIMITS.watches_max + 1):
            store.watch_value(f"/{number}", lambda: None)
    await until(lambda: gateway.counters.watches_now == LIMITS.watches_max)
    assert gateway.counters.peers_dropped == 0


async def test_a_store_with_as_many_requests_as_it_may_have_is_closed(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await gateway.connect()
    monkeypatch.setattr("metadata.gateway.connection.REQUESTS_MAX", 0)
    await store.aclose()
    await until(lambda: not gateway.counters.connections_now)


async def test_a_client_moves_to_another_gateway(
    gateway: RunningGateway, server: MemoryMetadataServer
) -> None:
    other = await run_gateway(MemoryMetadataStore(server))
    store = await gateway.connect(ALICE, other)
    ledger_id = await new_ledger(store, ALICE)
    states: list[SessionState] = []
    store.on_session(states.append)
    used = gateway if gateway.context.connections else other
    left = other if used is gateway else gateway
    await used.server.close()
    await until(lambda: SessionState.CONNECTED in states)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert left.counters.connections_now == 1
    assert (await ledgers(store).get(ledger_id, fresh=True))[0].owner == ALICE
    await store.aclose()
    await other.aclose()


async def test_no_gateway_answers(gateway: RunningGateway) -> None:
    await gateway.server.close()
    with pytest.raises(StoreUnavailableError, match="no answer within"):
        await open_store(gateway.uri, rng=random.Random(1), operation_timeout_s=0.2)
