"""Roles on ledgers with real bookies, ZooKeeper and certificates: an owner, a reader and others."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bookie.wire.messages import ListEntries, Status
from ledger_client import Quorum, UnauthorizedError
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.cluster_access import open_cluster
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId, EntryId, LedgerId
from quire.errors import ExitCode
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster
from tests.integration.quire.identity.known_clients import (
    THREE,
    KnownClients,
    principal,
    read_all,
    until_done,
    until_refused,
)
from tests.support.bookie.wire_client import batch_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ("alice", "bob", "carol", "root")
FAST = ClientConfig(append_deadline_s=10.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KnownClients]:
    tmp_path = tmp_path_factory.mktemp("roles")
    directory = SecureDirectory(tmp_path / "tls")
    directory.fill(clients=NAMES)
    options = {
        "tls": "required",
        "authorizer": "enforce",
        "super_users": principal("root"),
        "repair": "false",
        **directory.certificate_options("bookie"),
    }
    async with LocalCluster(3, tmp_path / "data", bookie_options=options) as cluster:
        yield KnownClients(cluster, directory, FAST)


async def test_others_may_not_use_a_ledger_and_its_owner_may(secured: KnownClients) -> None:
    async with secured.client("alice") as alice, secured.client("bob") as bob:
        ledger = await alice.create_ledger(THREE)
        assert (await alice.ledger_info(ledger.id)).owner == principal("alice")
        await ledger.append_many([b"one", b"two"])
        why = rf"CN=bob,.* may not read ledger {ledger.id}: .*quire grant add .* reader"
        with pytest.raises(UnauthorizedError, match=why):
            await read_all(bob, ledger.id)
        await check_raw_access(secured, "bob", ledger.id)
        with pytest.raises(UnauthorizedError, match="may not"):
            await bob.recover_ledger(ledger.id)
        await ledger.append(b"three")
        await ledger.aclose()
        assert await read_all(alice, ledger.id) == [b"one", b"two", b"three"]


async def check_raw_access(secured: KnownClients, name: str, ledger_id: int) -> None:
    """No bookie stores, lists or fences anything for this client."""
    async with open_cluster(secured.uri(name)) as cluster:
        metadata, _ = await cluster.ledgers.get(LedgerId(ledger_id))
        keys = LedgerKeys.of(metadata, b"")
        pool = cluster.open_pool()
        pool.attach(metadata.ledger_id, keys.master_key)
        try:
            for bookie_id in metadata.last_fragment.ensemble:
                with pytest.raises(BookieCallError) as refused:
                    request = ListEntries(metadata.ledger_id, EntryId(0))
                    await pool.list_entries(bookie_id, request, timeout_s=10)
                assert refused.value.status is Status.UNAUTHORIZED
                for recovery in (False, True):
                    outcome = Outcome()
                    batch = batch_of(ledger_id, 5)
                    pool.add(
                        bookie_id,
                        metadata.ledger_id,
                        batch,
                        EntryId(5),
                        recovery=recovery,
                        sink=outcome,
                    )
                    assert await outcome.status is Status.UNAUTHORIZED
        finally:
            pool.detach(metadata.ledger_id)
            await pool.aclose()


class Outcome:
    """An `AddSink` of one add."""

    def __init__(self) -> None:
        self.status: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    def on_add_answered(self, _bookie_id: BookieId, _first: EntryId, status: Status) -> None:
        self.status.set_result(status)

    def on_add_failed(self, _bookie_id: BookieId, _first: EntryId, *_: object) -> None:
        self.status.set_result(Status.UNKNOWN)


async def test_an_owner_recovers_its_ledger_with_another_client(secured: KnownClients) -> None:
    async with secured.client("alice") as writing, secured.client("alice") as recovering:
        ledger = await writing.create_ledger(THREE)
        await ledger.append_many([b"one", b"two"])
        assert (await recovering.recover_ledger(ledger.id)).last_entry_id == 1


async def test_a_reader_does_not_recover_the_ledger_of_a_missing_writer(
    secured: KnownClients,
) -> None:
    """The answer comes before the wait for the writer, and has the command for the right."""
    async with secured.client("alice") as alice, secured.client("bob") as bob:
        ledger = await alice.create_ledger(THREE)
        await ledger.append_many([b"one", b"two"])
        grant = (principal("bob"), "reader", f"ledger:{ledger.id}")
        assert await secured.quire("grant", "add", *grant) == ExitCode.DONE
        await (await alice._session.services()).registration.aclose()
        done = await bob.recover_abandoned([ledger.id])
        assert done.ended == ()
        why = f"`quire grant add {principal('bob')!r} recoverer ledger:{ledger.id}`"
        assert why in str(done.failures[ledger.id])
        assert await ledger.append(b"three") == 2


async def test_roles_reach_bookies_while_ledgers_are_attached(secured: KnownClients) -> None:
    async with (
        secured.client("alice") as alice,
        secured.client("bob") as bob,
        secured.client("carol") as carol,
    ):
        ledger = await alice.create_ledger(THREE, metadata=alice.chain("orders").custom_metadata)
        await ledger.append_many([b"one", b"two"])
        with pytest.raises(UnauthorizedError):
            await read_all(carol, ledger.id)
        assert (
            await secured.quire("grant", "add", principal("carol"), "reader", "chain:orders") == 0
        )
        await until_done(lambda: read_all(carol, ledger.id))
        with pytest.raises(UnauthorizedError, match="may not fence"):
            await carol.recover_ledger(ledger.id)
        await ledger.append(b"three")
        grant = (principal("bob"), "recoverer", "chain-prefix:ord")
        assert await secured.quire("grant", "add", *grant) == 0
        await until_done(lambda: bob.recover_ledger(ledger.id))
        assert (await bob.ledger_info(ledger.id)).last_entry_id == 2
        assert await secured.quire("grant", "remove", principal("carol"), "reader", "all") == (
            ExitCode.NOT_FOUND
        )
        await secured.quire("grant", "remove", principal("carol"), "reader", "chain:orders")
        await until_refused(lambda: read_all(carol, ledger.id))


async def test_attached_ledgers_go_on_without_zookeeper(secured: KnownClients) -> None:
    async with secured.client("alice") as alice:
        ledger = await alice.create_ledger(THREE)
        await ledger.append(b"one")
        await secured.cluster.zookeeper.stop()
        for number in range(20):
            await ledger.append(b"%d" % number)
        await secured.cluster.zookeeper.start()
        await ledger.aclose()


async def test_a_super_user_and_commands_use_every_ledger(secured: KnownClients) -> None:
    async with secured.client("alice") as alice, secured.client("root") as root:
        ledger = await alice.create_ledger(Quorum.all(3))  # no copy is late when it is verified
        await ledger.append(b"one")
        await ledger.aclose()
        assert await read_all(root, ledger.id) == [b"one"]
        assert await secured.quire("ledger", "verify", str(ledger.id)) == ExitCode.DONE
        assert await secured.quire("ledger", "read", str(ledger.id), name="bob") != ExitCode.DONE
