"""Each API is decided about, and needs the rights that Kafka's brokers require."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    FindCoordinatorRequest,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from broker_layer.security.guards import GUARDS, UNGUARDED
from tests.support.broker_layer.asking import topic
from tests.support.broker_layer.authorization_case import ON_CLUSTER, Case
from tests.support.broker_layer.authorized_broker import (
    EVERYTHING,
    AuthorizedBroker,
    authorized_broker,
    codes_in,
    refusals_in,
)
from tests.support.broker_layer.group_rights import CLUSTER_CASES, GROUP_CASES
from tests.support.broker_layer.topic_rights import TOPIC_CASES
from tests.support.broker_layer.transaction_rights import TRANSACTION_CASES
from tests.until import LOOK_S

LISTS = (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS)
"""APIs that leave out what the client may not see, and have no refusals."""


def test_each_api_is_decided_about() -> None:
    """A new API needs a guard, or the reason why it needs none."""
    decided = {*GUARDS, *UNGUARDED}
    assert sorted(set(ADVERTISED) - decided) == []
    assert sorted(decided - set(ADVERTISED)) == []
    assert sorted(set(GUARDS) & set(UNGUARDED)) == []
    assert all(UNGUARDED.values())


CASES = [*TOPIC_CASES, *GROUP_CASES, *TRANSACTION_CASES, *CLUSTER_CASES]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[AuthorizedBroker]:
    async with authorized_broker() as broker:
        await broker.permit(*EVERYTHING)
        for key, request, version in (
            (
                ApiKey.CREATE_TOPICS,
                CreateTopicsRequest(topics=[topic("t", 1)], timeout_ms=10_000),
                7,
            ),
            (ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="g", key_type=0), 3),
            (ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="x", key_type=1), 3),
        ):
            await broker.client.ask(key, request, version)
        (commit,) = (case for case in CASES if case.key is ApiKey.OFFSET_COMMIT)
        while any(codes_in(await commit.ask(broker.client))):  # noqa: ASYNC110 - it loads groups
            await asyncio.sleep(LOOK_S)  # until the group is there, whichever case runs first
        yield broker


def test_each_guarded_api_has_a_case() -> None:
    checked = {case.key for case in CASES}
    free = {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        *LISTS,
    }
    assert sorted(set(ADVERTISED) - checked - free) == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
async def test_rights(case: Case, broker: AuthorizedBroker) -> None:
    client = broker.client
    await broker.permit()
    assert case.refusal in refusals_in(await case.ask(client)), "no right"
    await broker.permit(*case.needs, principal="User:other")
    assert case.refusal in refusals_in(await case.ask(client)), "rights of another user"
    for missing in case.needs:
        await broker.permit(*(need for need in case.needs if need != missing))
        assert refusals_in(await case.ask(client)), f"all rights but {missing}"
        await broker.permit(*case.needs, f"deny {missing}")
        assert refusals_in(await case.ask(client)), f"{missing} is denied"
    await broker.permit(*case.needs)
    assert refusals_in(await case.ask(client)) == [], "exactly these rights"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
async def test_prefixes_give_rights(case: Case, broker: AuthorizedBroker) -> None:
    prefixes = [_prefixed(need) for need in case.needs]
    await broker.permit(*prefixes)
    assert refusals_in(await case.ask(broker.client)) == []


def _prefixed(need: str) -> str:
    resource, operation = need.split(" ")
    if resource == ON_CLUSTER or resource.endswith("*"):
        return need
    return f"{resource[:-1] if resource[-2] != ':' else resource}* {operation}"
