"""Guards of settings: of topics, of groups, and of brokers, which need a right on the cluster.

Leaves ListConfigResources to `cluster_guards`.

Source: KIP-11, KIP-133, KIP-339; Kafka's KafkaApis.
"""

from typing import Final, Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ApiMessage,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import NOT_AUTHORIZED, REFUSALS
from metadata.security.acls import CLUSTER_NAME, Operation, ResourceType

TOPIC_SETTINGS: Final = 2
GROUP_SETTINGS: Final = 32
"""Kafka's numbers of the kinds of resources whose settings need a right on the resource."""

_Described = DescribeConfigsResponse.DescribeConfigsResult
_Altered = AlterConfigsResponse.AlterConfigsResourceResponse
_AlteredIncrementally = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class SettingsOf(Protocol):
    """A resource of a request."""

    @property
    def resource_type(self) -> int:
        """Its kind."""

    @property
    def resource_name(self) -> str:
        """Its name."""


async def describe_configs(call: GuardedCall) -> ApiMessage:
    """Guard DescribeConfigs."""
    request = call.request
    assert isinstance(request, DescribeConfigsRequest), "the guard of this API"
    allowed, rows = [], []
    for asked in request.resources:
        code = _refusal(call, Operation.DESCRIBE_CONFIGS, asked)
        if code is ErrorCode.NONE:
            allowed.append(asked)
            continue
        rows.append(
            _Described(
                error_code=code,
                error_message=NOT_AUTHORIZED,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[],
            )
        )
    request.resources = allowed
    response = await call.serve(DescribeConfigsResponse)
    response.results = [*response.results, *rows]
    return response


async def alter_configs(call: GuardedCall) -> ApiMessage:
    """Guard AlterConfigs."""
    request = call.request
    assert isinstance(request, AlterConfigsRequest), "the guard of this API"
    allowed, rows = [], []
    for asked in request.resources:
        code = _refusal(call, Operation.ALTER_CONFIGS, asked)
        if code is ErrorCode.NONE:
            allowed.append(asked)
            continue
        rows.append(
            _Altered(
                error_code=code,
                error_message=NOT_AUTHORIZED,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    request.resources = allowed
    response = await call.serve(AlterConfigsResponse)
    response.responses = [*response.responses, *rows]
    return response


async def alter_configs_incrementally(call: GuardedCall) -> ApiMessage:
    """Guard IncrementalAlterConfigs."""
    request = call.request
    assert isinstance(request, IncrementalAlterConfigsRequest), "the guard of this API"
    allowed, rows = [], []
    for asked in request.resources:
        code = _refusal(call, Operation.ALTER_CONFIGS, asked)
        if code is ErrorCode.NONE:
            allowed.append(asked)
            continue
        rows.append(
            _AlteredIncrementally(
                error_code=code,
                error_message=NOT_AUTHORIZED,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    request.resources = allowed
    response = await call.serve(IncrementalAlterConfigsResponse)
    response.responses = [*response.responses, *rows]
    return response


def _refusal(call: GuardedCall, operation: Operation, asked: SettingsOf) -> ErrorCode:
    """Return the error for a resource whose settings the client may not describe or alter."""
    kind, name = ResourceType.CLUSTER, CLUSTER_NAME
    if asked.resource_type == TOPIC_SETTINGS:
        kind, name = ResourceType.TOPIC, asked.resource_name
    elif asked.resource_type == GROUP_SETTINGS:
        kind, name = ResourceType.GROUP, asked.resource_name
    return ErrorCode.NONE if call.rights.check(operation, kind, name) else REFUSALS[kind]
