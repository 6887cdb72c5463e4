"""Logins of one broker, put together from its options, with users of a metadata store."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.options import BROKER
from broker_layer.security.login_options import SecurityProtocol
from broker_layer.server.access import ServedLogins
from metadata.security.user_store import UserStore, UserTable
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from quire.identity.sasl.credentials import ITERATIONS_MIN, ScramMechanism, new_credential
from quire.identity.sasl.mechanism import REFUSED, Mechanism
from quire.identity.sasl.oauthbearer import OAuthBearerClient
from quire.identity.sasl.plain import PlainClient
from quire.server import slow_work
from tests.support.broker_layer.login_setting import (
    WALL_CLOCK_MS,
    LoginSetting,
    authenticate_frame,
    message_of,
)
from tests.support.security import token_parts
from tests.until import until

PASSWORD = "a password"
PLAIN = Mechanism.PLAIN
SCRAM = Mechanism.SCRAM_SHA_512
NO_OPTIONS: Mapping[str, str] = {}
PLAIN_FRAME = authenticate_frame(PlainClient("alice", PASSWORD).begin())


@dataclass(slots=True)
class Served:
    """Logins of a broker, and the store of its users."""

    served: ServedLogins
    setting: LoginSetting
    table: UserTable
    users: UserStore
    store: MemoryMetadataStore

    async def add(self, name: str, password: str = PASSWORD) -> None:
        await self.users.add(
            name, [new_credential(mechanism, password, Random(4)) for mechanism in ScramMechanism]
        )
        await until(lambda: name in self.table.users)


@asynccontextmanager
async def serving(
    protocol: SecurityProtocol = SecurityProtocol.SASL_SSL,
    server: MemoryMetadataServer | None = None,
    *,
    reads_users: bool = True,
    seed: int = 1,
    options: Mapping[str, str] = NO_OPTIONS,
) -> AsyncIterator[Served]:
    """Serve the logins of one listener."""
    given = {"sasl_enabled_mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN", **options}
    store, rng = MemoryMetadataStore(server or MemoryMetadataServer()), Random(seed)
    table, setting = UserTable(store, rng), LoginSetting()
    if reads_users:
        await table.start()
    served = ServedLogins(BROKER.load(None, {}, {**given}), table, setting.parts, rng)
    try:
        await served.start(store)
        setting.use(served.of(protocol))
        yield Served(served, setting, table, UserStore(store, rng), store)
    finally:
        await setting.aclose()
        await served.aclose()
        await table.aclose()
        await store.aclose()


async def first_answer(setting: LoginSetting, user: str) -> bytes:
    """Return what SCRAM shows of a user before a proof, without the nonce."""
    client = setting.connect()
    await client.shake_hands(SCRAM)
    answer = await client.authenticate(f"n,,n={user},r=abc".encode())
    client.lose()
    return bytes(answer.auth_bytes).partition(b",")[2]


@pytest.mark.parametrize("mechanism", [SCRAM, Mechanism.SCRAM_SHA_256, PLAIN])
async def test_users_of_the_store_log_in(mechanism: Mechanism) -> None:
    async with serving() as served:
        await served.add("alice")
        client = served.setting.connect()
        assert (await client.log_in(mechanism, "alice", PASSWORD)).error_code == 0
        assert await client.is_served()
        wrong = served.setting.connect()
        answer = await wrong.log_in(mechanism, "alice", "wrong")
        assert (answer.error_code, message_of(answer)) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            REFUSED,
        )


async def test_mechanisms_that_send_a_secret_are_not_offered_without_tls() -> None:
    async with serving(SecurityProtocol.SASL_PLAINTEXT) as served:
        answer = await served.setting.connect().shake_hands(PLAIN)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256"]


@pytest.mark.parametrize("mechanism", [SCRAM, PLAIN])
async def test_a_user_that_is_removed_is_disconnected(mechanism: Mechanism) -> None:
    async with serving() as served:
        await served.add("alice")
        await served.add("bob")
        clients = [served.setting.connect() for _ in range(2)]
        for client, user in zip(clients, ("alice", "bob"), strict=True):
            await client.log_in(mechanism, user, PASSWORD)
        await served.users.remove("alice")
        await until(lambda: clients[0].transport.is_lost)
        assert await clients[1].is_served()


async def test_nothing_is_revoked_after_the_end() -> None:
    async with serving() as served:
        await served.add("alice")
        client = served.setting.connect()
        await client.log_in(SCRAM, "alice", PASSWORD)
        await served.served.aclose()
        await served.users.remove("alice")
        await until(lambda: "alice" not in served.table.users)
        assert not client.is_closed


async def test_users_are_unknown_until_the_table_is_read() -> None:
    server = MemoryMetadataServer()
    async with serving(server=server) as served:
        await served.add("alice")
        async with serving(server=server, reads_users=False) as early:
            client = early.setting.connect()
            answer = await client.log_in(SCRAM, "alice", PASSWORD)
            assert (answer.error_code, message_of(answer)) == (
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                REFUSED,
            )
            await early.table.start()
            assert (await early.setting.connect().log_in(SCRAM, "alice", PASSWORD)).error_code == 0


async def test_decoys_are_the_same_on_all_brokers_and_after_a_restart() -> None:
    server, seen = MemoryMetadataServer(), list[bytes]()
    for _ in range(2):
        async with serving(server=server) as first, serving(server=server) as second:
            seen += [await first_answer(served.setting, "mallory") for served in (first, second)]
    assert len(set(seen)) == 1
    async with serving(seed=2) as other:
        assert await first_answer(other.setting, "mallory") != seen[0], "another cluster"


async def test_the_forms_of_known_users_are_among_those_of_unknown_ones() -> None:
    """Salt length and iterations of users that Quire, and of those that Kafka's tools make."""
    async with serving() as served:
        shown = {
            _form(await first_answer(served.setting, f"user-{number}")) for number in range(64)
        }
        await served.users.add(
            "alice",
            [
                new_credential(mechanism, PASSWORD, Random(4), 16_384)
                for mechanism in ScramMechanism
            ],
        )
        await until(lambda: "alice" in served.table.users)
        assert _form(await first_answer(served.setting, "alice")) in shown
        assert {iterations for _, iterations in shown} == {b"16384", str(ITERATIONS_MIN).encode()}


def _form(shown: bytes) -> tuple[int, bytes]:
    salt, _, iterations = shown.removeprefix(b"s=").partition(b",i=")
    return len(salt), iterations


@pytest.mark.real_time
async def test_passwords_are_checked_in_a_thread_and_only_so_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_work, "WAITING_MAX", 1)
    async with serving() as served:
        await served.add("alice")
        gate = threading.Event()
        holding = asyncio.ensure_future(served.served._slow.run(gate.wait))
        await asyncio.sleep(0)
        client = served.setting.connect()
        await client.shake_hands(PLAIN)
        client.send(PLAIN_FRAME)
        answer = await client.authenticated()
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert message_of(answer) == "too many clients log in now: try again later"
        gate.set()
        await holding
        assert (await served.setting.connect().log_in(PLAIN, "alice", PASSWORD)).error_code == 0


async def test_a_broker_that_stops_refuses_checks_without_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The threads end before the connections do: it was logged as an error of the broker."""
    async with serving() as served:
        await served.add("alice")
        client = served.setting.connect()
        await client.shake_hands(PLAIN)
        await served.served.aclose()
        client.send(PLAIN_FRAME)
        assert (await client.authenticated()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert served.setting.context.counters.requests_failed == 0
        assert all(record.levelno < logging.ERROR for record in caplog.records)


# -- tokens


def _token(**changes: object) -> str:
    """Return a token for the clock of the setting."""
    times = {"exp": WALL_CLOCK_MS / 1_000 + 300} | changes
    return token_parts.token(token_parts.claims(**times))


def _options(path: Path) -> dict[str, str]:
    return {
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauth_jwks": str(path),
        "sasl_oauth_issuer": token_parts.ISSUER,
        "sasl_oauth_audience": token_parts.AUDIENCE,
    }


async def test_tokens_of_a_key_in_a_file_log_in(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(token_parts.jwks(token_parts.rsa_jwk()))
    async with serving(options=_options(path)) as served:
        client = served.setting.connect()
        await client.shake_hands(Mechanism.OAUTHBEARER)
        answer = await client.prove(OAuthBearerClient(_token()))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 300_000)
        assert client.connection.principal.text == "User:alice"
        late = served.setting.connect()
        await late.shake_hands(Mechanism.OAUTHBEARER)
        answer = await late.prove(OAuthBearerClient(_token(exp=WALL_CLOCK_MS / 1_000 - 29)))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 1), "it is in the leeway"
        gone = served.setting.connect()
        await gone.shake_hands(Mechanism.OAUTHBEARER)
        answer = await gone.prove(OAuthBearerClient(_token(exp=WALL_CLOCK_MS / 1_000 - 31)))
        assert (answer.error_code, message_of(answer)) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            REFUSED,
        )


async def test_no_token_is_taken_without_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "quire.server.audit"):
        async with serving(options=_options(tmp_path / "missing")) as served:
            client = served.setting.connect()
            await client.shake_hands(Mechanism.OAUTHBEARER)
            answer = await client.prove(OAuthBearerClient(_token()))
            assert (answer.error_code, message_of(answer)) == (
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                REFUSED,
            )
    shown = json.dumps([vars(record)["fields"] for record in caplog.records])
    assert "missing" in shown
    assert _token() not in shown
