"""Logins at real bookies with the passwords of users of a real ZooKeeper: writers, readers,
commands and repair, and users that are changed and removed.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ledger_client import LedgerClient, UnauthorizedError
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.cluster_access import open_cluster
from ledger_client.config import ClientConfig
from metadata.ids import BookieId, LedgerId
from quire.errors import ExitCode
from quire.local.local_server import LocalBroker
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire, start_quire
from tests.integration.quire.identity.known_clients import THREE, read_all, until_done
from tests.until import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAST = ClientConfig(append_deadline_s=5.0, quarantine_s=5.0)
REPAIRED_S = 150.0


@dataclass
class LoginCluster:
    """A cluster whose bookies need logins, and clients' files."""

    cluster: LocalCluster
    directory: Path

    def client_file(self, user: str, password: str = "") -> Path:
        """Write a client's file that logs in as this user."""
        return write_client_file(self.directory, user, password)

    def uri(self, user: str, password: str = "") -> str:
        return f"{self.cluster.metadata_uri}?client={self.client_file(user, password)}"

    def client(self, user: str, password: str = "") -> LedgerClient:
        return LedgerClient(self.uri(user, password), config=FAST)

    async def quire(self, *words: str, user: str = "root") -> tuple[int, str]:
        done = await asyncio.to_thread(run_quire, *words, metadata=self.uri(user))
        return done.returncode, (done.stdout + done.stderr).decode()

    async def add_user(self, name: str) -> None:
        """Add a user. Tests share the cluster: users that one of them changes are only its own."""
        file = self.client_file(name).with_suffix(".password")
        words = ("user", "add", name, "--password-file", str(file))
        done = await asyncio.to_thread(run_quire, *words, metadata=self.cluster.metadata_uri)
        status, told = done.returncode, done.stderr.decode()
        assert status == ExitCode.DONE, told


def write_client_file(directory: Path, user: str, password: str = "") -> Path:
    path = directory / f"{user}.toml"
    secret = path.with_suffix(".password")
    secret.touch(0o600)
    secret.write_text(f"{password or f'the password of {user}'}\n")
    path.write_text(
        f'[sasl]\nmechanism = "SCRAM-SHA-512"\nuser = "{user}"\npassword_file = "{secret.name}"\n'
    )
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LoginCluster]:
    tmp_path = tmp_path_factory.mktemp("logins")
    options = {
        "client_logins": "required",
        "authorizer": "enforce",
        "super_users": "User:root;User:broker",
        "repair": "false",
    }
    async with LocalCluster(3, tmp_path / "data", bookie_options=options) as cluster:
        logins = LoginCluster(cluster, tmp_path)
        for name in ("root", "alice", "bob"):
            await logins.add_user(name)
        yield logins


async def write(client: LedgerClient, payloads: list[bytes]) -> int:
    async with client.create_ledger(THREE) as ledger:
        await ledger.append_many(payloads)
        return ledger.id


async def test_a_user_appends_and_reads_and_others_need_a_role(secured: LoginCluster) -> None:
    async with secured.client("alice") as alice, secured.client("bob") as bob:
        ledger_id = await write(alice, [b"one", b"two"])
        assert (await alice.ledger_info(ledger_id)).owner == "User:alice"
        assert await read_all(alice, ledger_id) == [b"one", b"two"]
        why = f"User:bob may not read ledger {ledger_id}: .*quire grant add 'User:bob' reader"
        with pytest.raises(UnauthorizedError, match=why):
            await read_all(bob, ledger_id)
        grant = ("grant", "add", "User:bob", "reader", f"ledger:{ledger_id}")
        assert (await secured.quire(*grant))[0] == ExitCode.DONE
        await until_done(lambda: read_all(bob, ledger_id))
        assert await read_all(bob, ledger_id) == [b"one", b"two"]


async def test_clients_without_a_login_or_with_a_wrong_password_learn_what_to_set(
    secured: LoginCluster,
) -> None:
    async with secured.client("alice") as alice:
        ledger_id = await write(alice, [b"one"])
    async with LedgerClient(secured.cluster.metadata_uri, config=FAST) as plain:
        with pytest.raises(UnauthorizedError, match=r"needs a login: write mechanism, user and"):
            await read_all(plain, ledger_id)
        with pytest.raises(UnauthorizedError, match="needs a login: write mechanism, user and"):
            await write(plain, [b"one"])
    async with secured.client("alice", "wrong") as wrong:
        text = "refuses the login of the user 'alice': authentication failed: check the user and"
        with pytest.raises(UnauthorizedError, match=text):
            await read_all(wrong, ledger_id)
        with pytest.raises(UnauthorizedError, match=text):
            await write(wrong, [b"one"])
    status, told = await secured.quire("ledger", "read", str(ledger_id), user="mallory")
    assert status != ExitCode.DONE
    assert "refuses the login of the user 'mallory'" in told


async def test_commands_of_operators_log_in(secured: LoginCluster) -> None:
    async with secured.client("alice") as alice:
        ledger_id = await write(alice, [b"one", b"two"])
    bookie = secured.cluster.bookies[0].id
    for words in (("ledger", "verify"), ("ledger", "read"), ("bookie", "entry", bookie)):
        entry = ("0",) if "entry" in words else ()
        status, told = await secured.quire(*words, str(ledger_id), *entry)
        assert status == ExitCode.DONE, told


async def test_a_user_that_is_removed_is_disconnected(secured: LoginCluster) -> None:
    await secured.add_user("carol")
    bookie_id = BookieId(secured.cluster.bookies[0].id)
    async with open_cluster(secured.uri("carol")) as cluster:
        pool = cluster.open_pool()
        try:
            assert (await pool.ping(bookie_id, timeout_s=WAIT_S)).writable
            lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            pool.on_unavailable(lambda *_: None if lost.done() else lost.set_result("lost"))
            assert (await secured.quire("user", "remove", "carol"))[0] == ExitCode.DONE
            async with asyncio.timeout(WAIT_S):
                await lost
                said = ""
                while "refuses the login of the user 'carol'" not in said:
                    with pytest.raises(BookieCallError) as refused:
                        await pool.ping(bookie_id, timeout_s=WAIT_S)
                    said = str(refused.value)  # at first maybe that the connection was lost
        finally:
            await pool.aclose()


async def test_a_writer_goes_on_with_the_new_password(secured: LoginCluster) -> None:
    await secured.add_user("dave")
    async with secured.client("dave") as dave:
        ledger = await dave.create_ledger(THREE)
        await ledger.append(b"one")
        file = secured.client_file("dave", "the new password").with_suffix(".password")
        change = ("user", "password", "dave", "--password-file", str(file))
        assert (await secured.quire(*change))[0] == ExitCode.DONE
    async with secured.client("dave", "the new password") as dave:
        assert (await dave.recover_ledger(ledger.id)).last_entry_id == 0
        assert await read_all(dave, ledger.id) == [b"one"]


async def test_a_broker_logs_in_at_bookies(secured: LoginCluster, tmp_path: Path) -> None:
    await secured.add_user("broker")
    uri = secured.uri("broker")
    broker = LocalBroker(1, tmp_path / "broker.log", uri, {"SASL_PLAINTEXT": 0}, 3, {})
    await broker.start()
    try:
        for words, sent in (
            (("topic", "create", "orders", "--partitions", "1"), b""),
            (("topic", "produce", "orders"), b"one\ntwo\n"),
        ):
            done = await asyncio.to_thread(run_quire, *words, metadata=uri, stdin=sent)
            assert done.returncode == ExitCode.DONE, done.stderr.decode()
        words = ("topic", "consume", "orders", "--count", "2")
        done = await asyncio.to_thread(run_quire, *words, metadata=uri)
        assert done.stdout.split() == [b"one", b"two"], done.stderr.decode()
    finally:
        await broker.stop()


async def test_repair_logs_in_and_copies(secured: LoginCluster) -> None:
    """It reads from other bookies with the key of repair, which replaces no login. The cluster has
    one bookie less afterwards.
    """
    await secured.add_user("repair")
    await secured.cluster.add_bookie()
    settings = ("repair", "settings", "lost_after_s=3", "urgent_after_s=3")
    assert (await secured.quire(*settings))[0] == ExitCode.DONE
    async with secured.client("alice") as alice:
        ledger_id = await write(alice, [b"one", b"two"])
        wiped = (await members(secured, ledger_id))[0]
        worker = start_quire("repair", "run-worker", "--audit", metadata=secured.uri("repair"))
        try:
            bookie = next(
                local_bookie for local_bookie in secured.cluster.bookies if local_bookie.id == wiped
            )
            bookie.kill()
            shutil.rmtree(bookie.data_dir)
            async with asyncio.timeout(REPAIRED_S):
                while wiped in await members(secured, ledger_id):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        finally:
            worker.kill()
            worker.communicate()
        assert await read_all(alice, ledger_id) == [b"one", b"two"]


async def members(secured: LoginCluster, ledger_id: int) -> tuple[BookieId, ...]:
    """Return the bookies of a closed ledger of one fragment."""
    async with open_cluster(secured.uri("alice")) as cluster:
        metadata, _ = await cluster.ledgers.get(LedgerId(ledger_id), fresh=True)
        return metadata.last_fragment.ensemble
