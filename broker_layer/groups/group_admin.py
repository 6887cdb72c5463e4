"""Handlers of DescribeGroups, ListGroups and DeleteGroups.

Leaves ConsumerGroupDescribe to `consumer_handlers`.

Source: Kafka's protocol, keys 15, 16 and 42; KIP-518, KIP-848, KIP-1043.
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.groups.classic.classic_group import ClassicGroup
from broker_layer.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.values import GroupState
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker_layer.security.rights import operations_on
from broker_layer.turns import Turns, slices
from metadata.security.acls import ResourceType

_NOT_FOUND_VERSION: Final = 6
CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"


class GroupAdminHandlers:
    """Administrative APIs of the groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def describe_groups(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve DescribeGroups; a group, which may be large, is described once."""
        assert isinstance(request, DescribeGroupsRequest)
        groups, turns = [], Turns()
        for group_id in dict.fromkeys(request.groups):
            await turns.pass_on()
            try:
                host = self._coordinator.host_of(group_id)
                group = host.shard.classic(group_id)
                described = _described(group_id, group, context.api_version)
                await host.settled()
            except TopicError as error:
                described = _undescribed(group_id, error.code, error.text)
            if request.include_authorized_operations:
                operations = operations_on(context.rights, ResourceType.GROUP, group_id)
                described.authorized_operations = set(operations)
            groups.append(described)
        return DescribeGroupsResponse(groups=groups)

    async def list_groups(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve ListGroups for the groups of this coordinator."""
        assert isinstance(request, ListGroupsRequest)
        del context
        states = [each.lower() for each in request.states_filter or ()]
        types = [each.lower() for each in request.types_filter or ()]
        groups, turns = list[ListGroupsResponse.ListedGroup](), Turns()
        try:
            for host in self._coordinator.hosts():
                found = list[ListGroupsResponse.ListedGroup]()
                for some in slices(host.shard.group_ids()):
                    found += [
                        listed
                        for listed in _listed(host, some)
                        if not states or listed.group_state.lower() in states
                        if not types or listed.group_type in types
                    ]
                    await turns.pass_on()
                if host.refusal is None:  # else another broker lists them
                    groups += found
        except TopicError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    async def delete_groups(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve DeleteGroups: delete groups without members, and their offsets."""
        assert isinstance(request, DeleteGroupsRequest)
        del context
        results, turns = [], Turns()
        for group_id in request.groups_names:
            await turns.pass_on()
            error = ErrorCode.NONE
            try:
                await self._delete(group_id)
            except TopicError as refusal:
                error = refusal.code
            results.append(
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            )
        return DeleteGroupsResponse(results=results)

    async def _delete(self, group_id: str) -> None:
        host = self._coordinator.host_of(group_id)
        group = host.shard.classic(group_id)
        consumers = host.shard.consumers.get(group_id)
        if group is None and consumers is None:
            raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        if consumers is not None and consumers.members:
            raise TopicError(
                ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members: stop them first"
            )
        if group is not None and group.state is not GroupState.EMPTY:
            raise TopicError(
                ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members: stop them first"
            )
        host.write(host.shard.removal_records(group_id))
        host.shard.groups.pop(group_id, None)
        host.shard.consumers.pop(group_id, None)
        await host.settled()


def _described(
    group_id: str, group: ClassicGroup | None, api_version: int
) -> DescribeGroupsResponse.DescribedGroup:
    if group is None:
        has_code = api_version >= _NOT_FOUND_VERSION
        code = ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.NONE
        text = f"Group {group_id} not found." if has_code else None
        return _undescribed(group_id, code, text, GroupState.DEAD)
    is_stable = group.state is GroupState.STABLE
    described = DescribeGroupsResponse.DescribedGroup
    return described(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            described.DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=each.assignment if is_stable else b"",
            )
            for each in group.roster.members.values()
        ],
    )


def _undescribed(
    group_id: str, code: ErrorCode, text: str | None, state: str = ""
) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _listed(host: GroupHost, group_ids: list[str]) -> list[ListGroupsResponse.ListedGroup]:
    listed = []
    for group_id in group_ids:
        group, consumers = host.shard.classic(group_id), host.shard.consumers.get(group_id)
        if consumers is not None:
            shown = (CONSUMER_PROTOCOL_TYPE, consumers.state, CONSUMER_TYPE)
        elif group is not None:
            shown = (group.protocol_type, group.state.value, CLASSIC_TYPE)
        else:
            continue  # it was removed meanwhile
        protocol_type, state, group_type = shown
        listed.append(
            ListGroupsResponse.ListedGroup(
                group_id=group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=group_type,
            )
        )
    return listed
