"""Quotas described and altered through Kafka's messages (KIP-546)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security import client_admin
from broker_layer.security.client_admin import QuotaHandlers
from metadata.security.quota_store import QuotaStore, QuotaTable
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.identity.principal import Principal
from quire.server.server_log import AuditLog
from tests.support.metadata.scripted_faults import ScriptedFaults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_layer.kafka.messages import ApiMessage

DESCRIBE, ALTER = ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS
PRODUCED, WORKED = "producer_byte_rate", "request_percentage"
CONNECTED, APPENDED = "connection_creation_rate", "append_byte_rate"
_Entry = AlterClientQuotasRequest.EntryData
_Component = DescribeClientQuotasRequest.ComponentData

Names = list[tuple[str, str | None]]
Values = dict[str, float | None]
ALICE: Names = [("user", "alice")]
ALL: Names = [("user", None)]


def entry(names: Names, *changes: tuple[str, float | None]) -> _Entry:
    return _Entry(
        entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in names],
        ops=[
            _Entry.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes
        ],
    )


@dataclass
class Broker:
    """Handlers of one broker, and what they use."""

    handlers: QuotaHandlers
    outage: ScriptedFaults
    version: int = 1

    async def ask(self, key: ApiKey, request: ApiMessage) -> ApiMessage:
        context = RequestContext(
            self.version, "client", "10.0.0.9", "SASL", 1, Principal("admin"), is_private=True
        )
        decoded = decode_request(key, self.version, bytes(encode_request(request, self.version)))
        answer = await self.handlers.handlers()[key](decoded, context)
        assert not isinstance(answer, bytes)
        return decode_response(key, self.version, bytes(encode_response(answer, self.version)))

    async def alter(
        self, *entries: _Entry, validate_only: bool = False
    ) -> list[tuple[int, str | None]]:
        request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
        answer = await self.ask(ALTER, request)
        assert isinstance(answer, AlterClientQuotasResponse)
        named = [
            [(entity_data.entity_type, entity_data.entity_name) for entity_data in e.entity]
            for e in answer.entries
        ]
        assert named == [[(x.entity_type, x.entity_name) for x in e.entity] for e in entries]
        return [(entry_data.error_code, entry_data.error_message) for entry_data in answer.entries]

    async def describe(
        self, *components: tuple[str, int, str | None], strict: bool = False
    ) -> list[tuple[Names, Values]]:
        request = DescribeClientQuotasRequest(
            components=[
                _Component(entity_type=kind, match_type=how, match=match)
                for kind, how, match in components
            ],
            strict=strict,
        )
        answer = await self.ask(DESCRIBE, request)
        assert isinstance(answer, DescribeClientQuotasResponse)
        if answer.error_code != ErrorCode.NONE:
            raise AssertionError(ErrorCode(answer.error_code).name, answer.error_message)
        return [
            (
                [(entity_data.entity_type, entity_data.entity_name) for entity_data in row.entity],
                {value.key: value.value for value in row.values},
            )
            for row in answer.entries or ()
        ]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    outage = ScriptedFaults()
    store = MemoryMetadataStore(MemoryMetadataServer(outage))
    table = QuotaTable(store, Random(1))
    await table.start()
    yield Broker(QuotaHandlers(QuotaStore(store, Random(2)), table, AuditLog(lambda: 0.0)), outage)
    outage.is_away = False
    await table.aclose()
    await store.aclose()


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_from_their_creation_to_their_end(broker: Broker, version: int) -> None:
    broker.version = version
    assert await broker.describe() == []
    done = (ErrorCode.NONE, None)
    first = entry(ALICE, (PRODUCED, 5.0), (WORKED, 12.5))
    assert await broker.alter(first, entry(ALL, (PRODUCED, 9.0))) == [done, done]
    expected = [(ALL, {PRODUCED: 9.0}), (ALICE, {PRODUCED: 5.0, WORKED: 12.5})]
    assert await broker.describe() == expected
    assert await broker.alter(entry(ALICE, (PRODUCED, None), ("unknown", None))) == [done]
    assert await broker.describe(("user", 0, "alice")) == [(ALICE, {WORKED: 12.5})]
    assert await broker.alter(entry(ALICE, (WORKED, None))) == [done]
    assert await broker.describe() == [(ALL, {PRODUCED: 9.0})]


async def test_the_keys_of_bookies_are_altered_described_and_kept(broker: Broker) -> None:
    done = (ErrorCode.NONE, None)
    assert await broker.alter(entry(ALICE, (APPENDED, 7.0), (PRODUCED, 5.0))) == [done]
    assert await broker.alter(entry(ALICE, (PRODUCED, None), (WORKED, 1.0))) == [done]
    assert await broker.describe() == [(ALICE, {WORKED: 1.0, APPENDED: 7.0})]
    assert await broker.alter(entry(ALICE, (WORKED, None), (APPENDED, None))) == [done]
    assert await broker.describe() == []


@pytest.mark.parametrize(
    ("altered", "why"),
    [
        (entry([("client-id", "c")], (APPENDED, 1.0)), "is not one of client-id 'c'"),
        (entry([], (PRODUCED, 1.0)), "the entity is empty"),
        (entry([("group", "a")], (PRODUCED, 1.0)), "'group' is unknown"),
        (entry([("user", "")], (PRODUCED, 1.0)), "has 0 characters"),
        (entry([("user", "a"), ("user", "a")], (PRODUCED, 1.0)), "names its user twice"),
        (entry([("user", "a"), ("ip", "10.0.0.1")], (PRODUCED, 1.0)), "an ip and a user"),
        (entry([("ip", "localhost")], (CONNECTED, 1.0)), "is not an IP address"),
        (entry(ALICE, ("produce", 1.0)), "'produce' is not one of user 'alice'"),
        (entry(ALICE, (CONNECTED, 1.0)), "'connection_creation_rate' is not one of"),
        (entry(ALICE, (PRODUCED, -1.0)), "greater than 0"),
        (entry(ALICE, (PRODUCED, 1.5)), "a whole number"),
        (entry(ALICE, (PRODUCED, 1.0), (PRODUCED, None)), "is altered twice"),
    ],
)
async def test_an_invalid_entry_is_refused_alone(broker: Broker, altered: _Entry, why: str) -> None:
    for validate_only in (True, False):
        good = entry(ALL, (PRODUCED, 9.0))
        refused, other = await broker.alter(altered, good, validate_only=validate_only)
        assert refused[0] == ErrorCode.INVALID_REQUEST
        assert why in (refused[1] or "")
        assert other == (ErrorCode.NONE, None)
    assert await broker.describe() == [(ALL, {PRODUCED: 9.0})]


async def test_an_entity_that_is_named_twice_is_not_altered(broker: Broker) -> None:
    one, other = entry(ALICE, (PRODUCED, 1.0)), entry(ALICE, (WORKED, 1.0))
    results = await broker.alter(one, entry(ALL, (PRODUCED, 9.0)), other)
    assert [code for code, _ in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert await broker.describe() == [(ALL, {PRODUCED: 9.0})]


async def test_a_validation_changes_nothing(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert await broker.alter(entry(ALICE, (PRODUCED, 1.0)), validate_only=True) == [(0, None)]
    assert await broker.describe() == []
    assert caplog.records == []


async def test_changes_are_in_the_audit_log(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await broker.alter(entry(ALICE, (PRODUCED, 1.0)), entry([], (PRODUCED, 1.0)))
    found = [record.fields for record in caplog.records]  # type: ignore[attr-defined]  # of the log
    shown = [(each["act"], each["result"], each["who"], each.get("entity")) for each in found]
    assert sorted(shown, key=str) == [
        ("AlterClientQuotas", "done", "User:admin", "user 'alice'"),
        ("AlterClientQuotas", "refused", "User:admin", None),
    ]


USER_A, USER_ALL = "user a", "user default"
BOTH, CLIENT_X = "user a, client x", "client x"
ENTITIES: dict[str, Names] = {
    USER_A: [("user", "a")],
    USER_ALL: [("user", None)],
    BOTH: [("user", "a"), ("client-id", "x")],
    CLIENT_X: [("client-id", "x")],
    "ip": [("ip", "10.0.0.1")],
}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, list(ENTITIES)),
        ([], True, []),
        ([("user", 0, "a")], False, [USER_A, BOTH]),
        ([("user", 0, "a")], True, [USER_A]),
        ([("user", 0, "b")], False, []),
        ([("user", 1, None)], False, [USER_ALL]),
        ([("user", 2, None)], False, [USER_A, USER_ALL, BOTH]),
        ([("user", 2, None)], True, [USER_A, USER_ALL]),
        ([("client-id", 2, None)], True, [CLIENT_X]),
        ([("client-id", 0, "x")], False, [BOTH, CLIENT_X]),
        ([("user", 2, None), ("client-id", 2, None)], False, [BOTH]),
        ([("user", 0, "a"), ("client-id", 1, None)], False, []),
        ([("ip", 2, None)], False, ["ip"]),
        ([("ip", 1, None)], False, []),
    ],
)
async def test_filters(
    broker: Broker, components: list[tuple[str, int, str | None]], strict: bool, expected: list[str]
) -> None:
    for name, names in ENTITIES.items():
        key = CONNECTED if name == "ip" else PRODUCED
        assert await broker.alter(entry(names, (key, 7.0))) == [(0, None)]
    found = [names for names, _ in await broker.describe(*components, strict=strict)]
    assert sorted(found, key=str) == sorted((ENTITIES[each] for each in expected), key=str)


@pytest.mark.parametrize(
    ("components", "why"),
    [
        ([("", 2, None)], "'' is unknown"),
        ([("group", 2, None)], "'group' is unknown"),
        ([("user", 2, None), ("user", 1, None)], "names user twice"),
        ([("user", 2, None), ("ip", 2, None)], "has ip and user or client-id"),
        ([("user", 3, None)], "match type 3 of user is unknown"),
        ([("user", 0, None)], "has match type 0: give a name"),
        ([("user", 1, "a")], "has match type 1: give a name"),
    ],
)
async def test_invalid_filters_are_refused(
    broker: Broker, components: list[tuple[str, int, str | None]], why: str
) -> None:
    with pytest.raises(AssertionError, match=why) as refusal:
        await broker.describe(*components)
    assert refusal.value.args[0] == "INVALID_REQUEST"


async def test_limits_of_requests_and_of_the_cluster(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_admin, "ALTERED_MAX", 1)
    both = entry(ALICE, (PRODUCED, 1.0)), entry(ALL, (PRODUCED, 1.0))
    refused = [(ErrorCode.INVALID_REQUEST, "2 entities are altered at once: alter at most 1")] * 2
    assert await broker.alter(*both) == refused
    await broker.alter(both[0])
    monkeypatch.setattr(broker.handlers._quotas, "_count_max", 1)
    for validate_only in (True, False):
        ((code, _),) = await broker.alter(both[1], validate_only=validate_only)
        assert code == ErrorCode.POLICY_VIOLATION


async def test_an_unreachable_store_is_reported(broker: Broker) -> None:
    broker.outage.is_away = True
    ((code, text),) = await broker.alter(entry(ALICE, (PRODUCED, 1.0)))
    assert (code, "no answer" in (text or "")) == (ErrorCode.REQUEST_TIMED_OUT, True)
    with pytest.raises(AssertionError, match="REQUEST_TIMED_OUT"):
        await broker.describe()
