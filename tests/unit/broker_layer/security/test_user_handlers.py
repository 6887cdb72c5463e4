"""Users described and altered through Kafka's messages (KIP-554)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security import client_admin
from broker_layer.security.client_admin import UserHandlers
from metadata.security.user_store import UserStore, UserTable
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import ScramMechanism, credential_of, salted_password
from quire.server.server_log import AuditLog
from tests.support.metadata.scripted_faults import ScriptedFaults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_layer.kafka.messages import ApiMessage

SHA_256, SHA_512 = ScramMechanism
SALT, ITERATIONS = b"0123456789abcdef", 4_096
SALTED = salted_password(SHA_256, "pencil", SALT, ITERATIONS)
OTHER = salted_password(SHA_256, "crayon", SALT, ITERATIONS)
SALTED_512 = salted_password(SHA_512, "pencil", SALT, ITERATIONS)
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


@dataclass
class Broker:
    """Handlers of one broker, and what they use."""

    handlers: UserHandlers
    users: UserStore
    table: UserTable
    outage: ScriptedFaults

    async def ask(self, key: ApiKey, request: ApiMessage, *, is_private: bool = True) -> ApiMessage:
        context = RequestContext(
            0, "client", "10.0.0.9", "SASL", 1, Principal("admin"), is_private=is_private
        )
        decoded = decode_request(key, 0, bytes(encode_request(request, 0)))
        answer = await self.handlers.handlers()[key](decoded, context)
        assert not isinstance(answer, bytes)
        return decode_response(key, 0, bytes(encode_response(answer, 0)))

    async def alter(
        self,
        deletions: list[_Deletion] | None = None,
        upsertions: list[_Upsertion] | None = None,
        *,
        is_private: bool = True,
    ) -> list[tuple[str, int]]:
        request = AlterUserScramCredentialsRequest(
            deletions=deletions or [], upsertions=upsertions or []
        )
        key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        answer = await self.ask(key, request, is_private=is_private)
        assert isinstance(answer, AlterUserScramCredentialsResponse)
        assert all(
            (result.error_code == 0) == (not result.error_message) for result in answer.results
        )
        return [(result.user, result.error_code) for result in answer.results]

    async def describe(self, *names: str) -> DescribeUserScramCredentialsResponse:
        kind = DescribeUserScramCredentialsRequest.UserName
        request = DescribeUserScramCredentialsRequest(
            users=[kind(name=name) for name in names] or None
        )
        answer = await self.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        assert isinstance(answer, DescribeUserScramCredentialsResponse)
        return answer

    async def shown(self, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
        answer = await self.describe(*names)
        assert answer.error_code == ErrorCode.NONE
        return [
            (
                result.user,
                result.error_code,
                [(info.mechanism, info.iterations) for info in result.credential_infos],
            )
            for result in answer.results
        ]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    outage, rng = ScriptedFaults(), Random(7)
    store = MemoryMetadataStore(MemoryMetadataServer(outage))
    users, table = UserStore(store, rng), UserTable(store, rng)
    await table.start()
    yield Broker(UserHandlers(users, table, AuditLog(lambda: 0.0)), users, table, outage)
    outage.is_away = False
    await table.aclose()
    await store.aclose()


def deletion(name: str, mechanism: int = 1) -> _Deletion:
    return _Deletion(name=name, mechanism=mechanism)


def upsertion(
    name: str,
    mechanism: int = 1,
    salted: bytes = SALTED,
    *,
    iterations: int = ITERATIONS,
    salt: bytes = SALT,
) -> _Upsertion:
    return _Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )


async def test_a_user_is_created_described_changed_and_deleted(broker: Broker) -> None:
    assert await broker.alter([], [upsertion("a")]) == [("a", 0)]
    expected = credential_of(SHA_256, SALTED, SALT, ITERATIONS)
    assert broker.table.find("a", SHA_256) == expected, "this broker shows it at once"
    assert await broker.alter([], [upsertion("a", 2, SALTED_512, iterations=8_192)]) == [("a", 0)]
    assert await broker.shown("a") == [("a", 0, [(1, 4_096), (2, 8_192)])]
    assert await broker.alter([], [upsertion("a", salted=OTHER)]) == [("a", 0)]
    assert broker.table.find("a", SHA_256) == credential_of(SHA_256, OTHER, SALT, ITERATIONS)
    assert await broker.alter([deletion("a"), deletion("a", 2)]) == [("a", 0)]
    assert await broker.shown() == []
    assert await broker.alter([deletion("a")]) == [("a", 91)]


async def test_users_are_described_by_name_or_all(broker: Broker) -> None:
    assert await broker.shown() == []
    await broker.alter([], [upsertion("b"), upsertion("a")])
    assert await broker.shown() == [("a", 0, [(1, 4_096)]), ("b", 0, [(1, 4_096)])]
    assert await broker.shown("b", "x", "a", "a", "") == [
        ("b", 0, [(1, 4_096)]),
        ("x", 91, []),
        ("a", 92, []),
        ("", 91, []),
    ]


async def test_deletions_and_upsertions_of_one_user_are_one_change(broker: Broker) -> None:
    await broker.alter([], [upsertion("a"), upsertion("b")])
    both = [upsertion("a", 2, SALTED_512), upsertion("b", 2, b"short")]
    assert await broker.alter([deletion("a"), deletion("b")], both) == [("a", 0), ("b", 93)]
    assert (await broker.users.get("a")).mechanisms == (SHA_512,)
    assert (await broker.users.get("b")).mechanisms == (SHA_256,), "nothing of it was applied"
    assert await broker.alter([deletion("b", 2)], [upsertion("b", salted=OTHER)]) == [("b", 91)]
    assert broker.table.find("b", SHA_256) == credential_of(SHA_256, SALTED, SALT, ITERATIONS)


@pytest.mark.parametrize(
    ("deletions", "upsertions", "expected"),
    [
        ([], [upsertion("")], 93),
        ([deletion("")], [], 93),
        ([], [upsertion("a\n")], 93),
        ([], [upsertion("x" * 256)], 93),
        ([], [upsertion("a", iterations=4_095)], 93),
        ([], [upsertion("a", iterations=16_385)], 93),
        ([], [upsertion("a", iterations=-1)], 93),
        ([], [upsertion("a", salted=b"")], 93),
        ([], [upsertion("a", salted=SALTED_512)], 93),
        ([], [upsertion("a", salt=b"")], 93),
        ([], [upsertion("a", salt=b"x" * 1_025)], 93),
        ([], [upsertion("a", 0)], 33),
        ([], [upsertion("a", 3)], 33),
        ([deletion("a", -1)], [], 33),
        ([], [upsertion("a"), upsertion("a", salted=OTHER)], 92),
        ([deletion("a"), deletion("a")], [], 92),
        ([deletion("a")], [upsertion("a")], 92),
        ([deletion("a", 2)], [], 91),
    ],
)
async def test_what_is_refused(
    broker: Broker, deletions: list[_Deletion], upsertions: list[_Upsertion], expected: int
) -> None:
    ((_, code),) = await broker.alter(deletions, upsertions)
    assert code == expected
    assert await broker.shown() == []


async def test_a_refused_user_does_not_hold_up_others(broker: Broker) -> None:
    asked = [upsertion("a", 9), upsertion("b"), upsertion(""), upsertion("c")]
    assert await broker.alter([], asked) == [("a", 33), ("b", 0), ("", 93), ("c", 0)]
    assert await broker.users.names() == ["b", "c"]


async def test_a_connection_that_others_can_read_is_refused(broker: Broker) -> None:
    await broker.alter([], [upsertion("b")])
    asked = ([deletion("b")], [upsertion("a")])
    assert await broker.alter(*asked, is_private=False) == [("b", 42), ("a", 42)]
    assert await broker.users.names() == ["b"]


async def test_limits_of_a_request(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_admin, "ALTERED_MAX", 3)
    monkeypatch.setattr(client_admin, "USERS_DESCRIBED_MAX", 3)
    names = ["a", "b", "c", "d"]
    asked = [upsertion(name) for name in names]
    assert await broker.alter([], asked) == [(name, 42) for name in names]
    assert await broker.users.names() == []
    assert await broker.alter([], asked[:3]) == [(name, 0) for name in names[:3]]
    assert len(await broker.shown()) == 3
    assert (await broker.describe(*names)).error_code == 42
    await broker.alter([], asked[3:])
    answer = await broker.describe()
    assert (answer.error_code, answer.results) == (42, [])
    assert answer.error_message is not None
    assert "name fewer users" in answer.error_message


async def test_many_users_are_altered_in_turns(broker: Broker) -> None:
    names = [f"u{number:03}" for number in range(client_admin.CHANGES_AT_ONCE_MAX + 5)]
    results = await broker.alter([], [upsertion(name) for name in names])
    assert results == [(name, 0) for name in names]
    assert await broker.users.names() == names


async def test_an_outage_is_reported_and_changes_nothing(broker: Broker) -> None:
    await broker.alter([], [upsertion("a")])
    broker.outage.is_away = True
    assert await broker.alter([deletion("a")]) == [("a", 7)]
    answer = await broker.describe("a")
    assert (answer.error_code, answer.results) == (7, [])
    broker.outage.is_away = False
    assert await broker.users.names() == ["a"]


async def test_the_audit_log_names_users_and_no_secrets(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await broker.alter([], [upsertion("a"), upsertion("b", 9)])
    await broker.alter([deletion("c")])
    await broker.alter([deletion("a")], is_private=False)
    fields = [record.__dict__["fields"] for record in caplog.records if "fields" in vars(record)]
    common = {"act": "AlterUserScramCredentials", "who": "User:admin", "peer": "10.0.0.9"}
    assert [{**field, **common} for field in fields] == fields
    assert sorted((field["result"], field["error"], field.get("user", "")) for field in fields) == [
        ("done", "NONE", "a"),
        ("failed", "RESOURCE_NOT_FOUND", "c"),
        ("refused", "INVALID_REQUEST", ""),
        ("refused", "UNSUPPORTED_SASL_MECHANISM", "b"),
    ]
    assert fields[-1]["users"] == 1
    written = repr(fields)
    for secret in (SALT, SALTED):
        assert repr(secret)[2:-1] not in written
        assert secret.hex() not in written
