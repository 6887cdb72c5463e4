"""Quotas of a whole broker: altered and described over a connection, listed as served, and kept."""

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.whole_broker import whole_broker

_Entry = AlterClientQuotasRequest.EntryData
ENTRY = _Entry(
    entity=[_Entry.EntityData(entity_type="user", entity_name=None)],
    ops=[_Entry.OpData(key="request_percentage", value=0.000001, remove=False)],
)


@pytest.mark.real_time
async def test_a_broker_alters_describes_and_applies_quotas() -> None:
    async with whole_broker() as client:
        versions = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
        assert isinstance(versions, ApiVersionsResponse)
        assert {api_key.api_key for api_key in versions.api_keys} >= {48, 49}
        question = DescribeClientQuotasRequest(components=[], strict=False)
        before = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, question, 1)
        assert isinstance(before, DescribeClientQuotasResponse)
        assert (before.entries, before.throttle_time_ms) == ([], 0)
        request = AlterClientQuotasRequest(entries=[ENTRY], validate_only=False)
        altered = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, 1)
        assert isinstance(altered, AlterClientQuotasResponse)
        assert [entry.error_code for entry in altered.entries] == [ErrorCode.NONE]
        after = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, question, 1)
        assert isinstance(after, DescribeClientQuotasResponse)
        assert after.entries is not None
        (row,) = after.entries
        assert [
            (entity_data.entity_type, entity_data.entity_name) for entity_data in row.entity
        ] == [("user", None)]
        assert [(value.key, value.value) for value in row.values] == [
            ("request_percentage", 0.000001)
        ]
        assert after.throttle_time_ms > 0
