"""The resources that have settings."""

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import Admin, topic


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
    found = [
        (resource.resource_type, resource.resource_name) for resource in answer.config_resources
    ]
    assert found == (expected or [])
