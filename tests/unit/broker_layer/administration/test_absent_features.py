"""What tools ask for and Quire does not have, and the resources that have settings."""

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import Admin, topic


@pytest.mark.parametrize("version", [0, 1])
async def test_no_client_has_a_quota(admin: Admin, version: int) -> None:
    component = DescribeClientQuotasRequest.ComponentData(
        entity_type="client-id", match_type=2, match=None
    )
    request = DescribeClientQuotasRequest(components=[component], strict=False)
    key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    answer = await admin.ask(key, request, DescribeClientQuotasResponse, version)
    assert (answer.error_code, answer.entries) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (None, []),
        ([], []),
        (["x", "y"], [("x", 91), ("y", 91)]),
        (["x", "y", "x"], [("x", 92), ("y", 91)]),
    ],
)
async def test_there_are_no_users(
    admin: Admin, names: list[str] | None, expected: list[tuple[str, int]]
) -> None:
    kind = DescribeUserScramCredentialsRequest.UserName
    users = None if names is None else [kind(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users)
    key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    answer = await admin.ask(key, request, DescribeUserScramCredentialsResponse)
    assert answer.error_code == ErrorCode.NONE
    assert [(each.user, each.error_code) for each in answer.results] == expected
    assert all(not each.credential_infos for each in answer.results)


@pytest.mark.parametrize(
    ("version", "kinds", "expected"),
    [
        (0, [], []),
        (1, [], [(2, "a"), (2, "b"), (4, "1")]),
        (1, [4, 4], [(4, "1")]),
        (1, [32, 2, 16, 8], [(2, "a"), (2, "b")]),
        (1, [2, 99], None),
    ],
)
async def test_resources_with_settings_are_listed(
    admin: Admin, version: int, kinds: list[int], expected: list[tuple[int, str]] | None
) -> None:
    await admin.create(topic("b"), topic("a"))
    request = ListConfigResourcesRequest(resource_types=kinds)
    key = ApiKey.LIST_CONFIG_RESOURCES
    answer = await admin.ask(key, request, ListConfigResourcesResponse, version)
    code = ErrorCode.UNSUPPORTED_VERSION if expected is None else ErrorCode.NONE
    assert answer.error_code == code
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert found == (expected or [])
