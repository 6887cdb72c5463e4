"""Logins of servers and clients, and what each may do to the nodes of a real ZooKeeper."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from metadata import paths
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, ClientId, LedgerId, Version
from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import CLIENT_RIGHTS, Right
from metadata.registry.cluster import ensure_cluster
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.repair_key import read_or_create_repair_key, read_repair_key
from metadata.repair.settings_store import RepairSettingsStore
from metadata.security.access_errors import AccessRefusedError, NotAServerError
from metadata.security.rights_record import (
    OPEN,
    OPEN_LIST,
    AccessEntry,
    NodeRights,
    checked_rights,
)
from metadata.security.securing import Outcome, Securing
from metadata.store.interface import Create, MetadataStore, Stored
from metadata.store.zookeeper.calls import NoAuth
from metadata.store.zookeeper.store import ZooKeeperMetadataStore, open_store
from tests.support.metadata.logins import Login, write_login
from tests.support.metadata.samples import open_ledger
from tests.until import WAIT_S

_numbers = itertools.count()
B = BookieId("b")
COOKIE = paths.cookie_path(B)
TOPIC = paths.topic_path("t")
SECRET = "/security/users/alice"


@dataclass
class Setting:
    """A filled cluster that is open, and the files of its logins."""

    uri: str
    directory: Path
    stores: list[ZooKeeperMetadataStore] = field(default_factory=list)

    def login(self, user: str, password: str = "") -> Login:
        return write_login(self.directory, user, password)

    async def open(self, user: str = "", password: str = "") -> ZooKeeperMetadataStore:
        """Connect with a login; without one if no user is given."""
        uri = self.login(user, password).uri(self.uri) if user else self.uri
        store = await open_store(uri, rng=random.Random(len(self.stores)))
        self.stores.append(store)
        return store

    @property
    def rights(self) -> NodeRights:
        return checked_rights([self.login("servers").identity], [self.login("clients").identity])

    async def secure(self, store: ZooKeeperMetadataStore, rights: NodeRights) -> Outcome:
        return await Securing(store, random.Random(5), rights).apply()


@pytest.fixture
async def setting(server_uri: str, tmp_path: Path, rng: random.Random) -> AsyncIterator[Setting]:
    setting = Setting(f"{server_uri}/rights/{next(_numbers)}", tmp_path)
    store = await setting.open()
    await ensure_cluster(store, rng)
    await read_or_create_repair_key(store, rng)
    for path in (COOKIE, TOPIC, SECRET):
        await store.create(path, b"secret")
    await LedgerStore(store, rng, lambda: 0).create(open_ledger(5))
    yield setting
    for metadata_store in setting.stores:
        await metadata_store.aclose()


async def test_the_rights_of_every_node_are_those_of_the_table(setting: Setting) -> None:
    servers = await setting.open("servers")
    for path in CLIENT_RIGHTS:
        if path not in ("/", paths.NODE_RIGHTS) and not await exists(servers, path):
            await servers.create(path, b"")
    outcome = await setting.secure(servers, setting.rights)
    assert outcome.is_settled
    assert outcome.refused == []
    for path in CLIENT_RIGHTS:
        assert await servers.access_to(path) == setting.rights.access_to(path), path
    assert (await setting.secure(servers, setting.rights)).changed_count == 0


async def exists(store: MetadataStore, path: str) -> bool:
    try:
        await store.get(path)
    except NodeNotFoundError:
        return False
    return True


async def test_what_a_client_may_not_do(setting: Setting, rng: random.Random) -> None:
    servers = await setting.open("servers")
    await setting.secure(servers, setting.rights)
    client = await setting.open("clients")
    refused: dict[str, Callable[[], Awaitable[object]]] = {
        "change a cookie": lambda: client.compare_and_set(COOKIE, b"", Version(0)),
        "delete a cookie": lambda: client.delete(COOKIE, Version(0)),
        "make a cookie": lambda: client.create(paths.cookie_path(BookieId("c")), b""),
        "register as a bookie": lambda: client.create(
            paths.bookie_path(BookieId("c")), b"", ephemeral=True
        ),
        "drain a bookie": lambda: LifecycleStore(client, rng).change(
            B, Lifecycle.DRAINING, "a test", 1
        ),
        "set repair": lambda: RepairSettingsStore(client, rng).change(urgent_after_s=1),
        "publish a job": lambda: client.create(f"{paths.REPAIR_JOBS}/j", b""),
        "hold a claim": lambda: client.create(
            paths.repair_claim_path(LedgerId(5)), b"", ephemeral=True
        ),
        "be the auditor": lambda: client.create(paths.AUDITOR, b"", ephemeral=True),
        "read the key of repair": lambda: read_repair_key(client),
        "change a topic": lambda: client.compare_and_set(TOPIC, b"", Version(0)),
        "make a topic": lambda: client.create(paths.topic_path("u"), b""),
        "read a user": lambda: client.get(SECRET),
        "make a user": lambda: client.create("/security/users/bob", b""),
        "change the instance": lambda: client.compare_and_set(paths.INSTANCE, b"", Version(0)),
        "make a node of the root": lambda: client.create("/new", b""),
        "change the rights": lambda: client.set_access(COOKIE, OPEN_LIST),
        "change its own rights": lambda: client.set_access(
            paths.ledger_path(LedgerId(5)), OPEN_LIST
        ),
        "change the record": lambda: client.compare_and_set(paths.NODE_RIGHTS, b"", Version(0)),
        "remove the node of all ledgers": lambda: client.delete(paths.LEDGERS, Version(0)),
        "use a multi": lambda: client.multi([Create(paths.cookie_path(BookieId("d")), b"")]),
    }
    for what, act in refused.items():
        with pytest.raises(AccessRefusedError, match="quire metadata secure"):
            await act()
            pytest.fail(f"a client may {what}")
    assert (await client.get(COOKIE)).value == b"secret"


async def test_a_refusal_fails_one_of_several_reads_that_go_together(setting: Setting) -> None:
    servers = await setting.open("servers")
    await setting.secure(servers, setting.rights)
    client = await setting.open("clients")
    paths_read = [COOKIE, SECRET, "/nothing", COOKIE]
    found = await asyncio.gather(*map(client.get, paths_read), return_exceptions=True)
    assert [type(each) for each in found] == [
        Stored,
        AccessRefusedError,
        NodeNotFoundError,
        Stored,
    ]
    assert found[0] == found[3] == await servers.get(COOKIE)


async def test_what_a_client_may_do(setting: Setting, rng: random.Random) -> None:
    servers = await setting.open("servers")
    await setting.secure(servers, setting.rights)
    client = await setting.open("clients")
    ledgers = LedgerStore(client, rng, lambda: 0)
    ledger_id = await LedgerIdAllocator(client, rng).allocate()
    await ledgers.create(open_ledger(ledger_id))
    chosen = LedgerId(2**40)
    await ledgers.create(open_ledger(chosen), is_chosen=True)
    own = paths.client_path(ClientId("c"))
    await client.create(own, b"", ephemeral=True)
    await client.compare_and_set(own, b"1", Version(0))
    await client.delete(own, Version(1))
    await ChainStore(client, rng, lambda: 0).create("chain")
    assert await client.children(paths.COOKIES, fresh=True, agreed=True) == [B]
    for each in (ledger_id, chosen):
        path = paths.ledger_path(each)
        assert await servers.access_to(path) == setting.rights.access_to(path)
        assert await ledgers.delete(each)
    assert await LedgerStore(servers, rng, lambda: 0).delete(LedgerId(5))


async def test_without_a_login_nothing_is_read(setting: Setting) -> None:
    before = await setting.open()
    await setting.secure(await setting.open("servers"), setting.rights)
    for path in (paths.INSTANCE, COOKIE, "/"):
        with pytest.raises(AccessRefusedError):
            await before.get(path)
        with pytest.raises(AccessRefusedError):
            await before.children(path)
    with pytest.raises(AccessRefusedError, match=r"\?client=FILE"):
        await setting.open()


async def test_a_refusal_is_an_answer_of_the_server(setting: Setting) -> None:
    """Also of what `test_zookeeper_heartbeat` sends: such a session stays."""
    servers, before = await setting.open("servers"), await setting.open()
    await setting.secure(servers, setting.rights)
    with pytest.raises(NoAuth):
        await before._session.submit("exists", "/")
    with pytest.raises(AccessRefusedError):
        await before.get(COOKIE)


async def test_a_wrong_password_is_reported_when_the_store_opens(setting: Setting) -> None:
    """ZooKeeper takes any password: it makes another identity."""
    other = await setting.open("clients", "another-long-password")
    await other.aclose()
    await setting.secure(await setting.open("servers"), setting.rights)
    with pytest.raises(AccessRefusedError, match=r"\?client=FILE") as caught:
        await setting.open("clients", "another-long-password")
    assert "another-long-password" not in str(caught.value)


async def test_stores_that_are_open_follow_the_record(setting: Setting) -> None:
    servers, client = await setting.open("servers"), await setting.open("clients")
    path = "/ledgers/0001"
    await client.create(path, b"")
    assert await client.access_to(path) == OPEN_LIST
    await setting.secure(servers, setting.rights)
    assert await servers.access_to(path) == setting.rights.access_to(path)
    numbers = itertools.count(2)

    async def until_made_with(wanted: NodeRights) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                made = f"/ledgers/{next(numbers):04}"
                await client.create(made, b"")
                if await servers.access_to(made) == wanted.access_to(made):
                    return

    await until_made_with(setting.rights)
    await setting.secure(servers, OPEN)
    await until_made_with(OPEN)
    assert not await exists(servers, paths.NODE_RIGHTS)
    assert (await (await setting.open()).get(paths.REPAIR_KEY)).version == 0


@pytest.mark.parametrize("user", ["", "clients", "others"])
async def test_a_process_never_removes_its_own_rights(setting: Setting, user: str) -> None:
    store = await setting.open(user)
    with pytest.raises(NotAServerError, match="nothing was changed"):
        await setting.secure(store, setting.rights)
    plain = await setting.open()
    assert await plain.access_to("/") == OPEN_LIST
    assert not [name for name in await plain.children("/") if name.startswith("node-rights")]


async def test_a_plan_changes_nothing(setting: Setting) -> None:
    servers = await setting.open("servers")
    changes: dict[str, tuple[object, object]] = {}
    securing = Securing(
        servers,
        random.Random(1),
        setting.rights,
        on_change=lambda path, found, wanted: changes.update({path: (found, wanted)}),
    )
    outcome = await securing.plan()
    assert outcome.changed_count == outcome.node_count == len(changes)
    assert changes[COOKIE] == (OPEN_LIST, setting.rights.access_to(COOKIE))
    assert await servers.access_to(COOKIE) == OPEN_LIST


async def test_a_password_is_replaced_while_both_are_in_use(setting: Setting) -> None:
    old = await setting.open("servers")
    await setting.secure(old, setting.rights)
    newer = setting.login("servers2").identity
    both = NodeRights((*setting.rights.servers, newer), setting.rights.clients)
    assert (await setting.secure(old, both)).is_settled
    replaced = await setting.open("servers2")
    only = NodeRights((newer,), setting.rights.clients)
    assert (await setting.secure(replaced, only)).is_settled
    with pytest.raises(AccessRefusedError):
        await old.get(paths.REPAIR_KEY)
    assert (await replaced.get(COOKIE)).value == b"secret"


async def test_a_node_that_a_client_keeps_for_itself_is_reported(setting: Setting) -> None:
    servers, client = await setting.open("servers"), await setting.open("clients")
    kept = "/ledgers/9999"
    await client.create(kept, b"")
    alone = (AccessEntry(setting.login("clients").identity, Right.READ | Right.ADMIN),)
    await client.set_access(kept, alone)
    outcome = await setting.secure(servers, setting.rights)
    assert outcome.refused == [kept]
    await servers.delete(kept, Version(0))  # a right on its parent


async def test_an_interrupted_change_is_completed_by_another(setting: Setting) -> None:
    servers = await setting.open("servers")
    walked = asyncio.Event()
    securing = Securing(
        servers, random.Random(1), setting.rights, on_walked=lambda _count: walked.set()
    )
    task = asyncio.create_task(securing.apply())
    await walked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = await setting.open("servers")
    assert (await setting.secure(again, setting.rights)).is_settled
    for path in (COOKIE, paths.REPAIR_KEY, "/"):
        assert await again.access_to(path) == setting.rights.access_to(path)


async def test_a_record_that_cannot_be_read_stops_creations(setting: Setting) -> None:
    """It could protect nodes: a store that does not know creates none."""
    plain = await setting.open()
    await plain.create(paths.NODE_RIGHTS, b"\x92\x63\x00")
    with pytest.raises(MetadataFormatError, match="newer release"):
        await setting.open("servers")
