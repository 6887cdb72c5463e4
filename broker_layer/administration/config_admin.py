"""Handlers of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Leaves storing changes to `topic_changes.py`, waiting for other brokers to `spreading.py`, and the
rows of an answer to `shown_configs.py`.

Invariants: only settings of topics are altered here; those of brokers are altered in their
configuration. Each resource has its own answer. Its settings are altered together or not at all;
those of one that a request names twice are not.

Source: KIP-133, KIP-226, KIP-339, KIP-569, KIP-1142.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from broker_layer.administration.shown_configs import (
    ConfigRow,
    ResourceType,
    broker_rows,
    topic_rows,
)
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.topic_changes import LOOK_UPS_MAX, ConfigChange, TopicChanges
from broker_layer.errors import TopicError, unknown_topic
from broker_layer.handlers import RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ApiMessage,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker_layer.log.topic_config_table import DEFINITIONS, ConfigType
from broker_layer.log.topic_configs import (
    changed_configs,
    check_configs,
    kept_configs,
    list_of,
)

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Row = _Result.DescribeConfigsResourceResult
_Resource = DescribeConfigsRequest.DescribeConfigsResource
_Steps = IncrementalAlterConfigsRequest.AlterConfigsResource
_Step = _Steps.AlterableConfig
_Altered = AlterConfigsResponse.AlterConfigsResourceResponse
_AlteredIncrementally = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_AskedResource = (
    AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource
)
ResourceT = TypeVar(
    "ResourceT",
    AlterConfigsRequest.AlterConfigsResource,
    IncrementalAlterConfigsRequest.AlterConfigsResource,
)
AnswerT = TypeVar("AnswerT", _Altered, _AlteredIncrementally)
NAMED_TWICE: Final = "the resource is named more than once: name each once"

MOVE_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Settings of brokers that `kafka-reassign-partitions` deletes when it verifies or cancels."""


class StepKind(IntEnum):
    """Operation of IncrementalAlterConfigs on one setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAdmin:
    """Handlers of one broker for requests about settings."""

    def __init__(
        self,
        broker_id: int,
        view: ClusterView,
        changes: TopicChanges,
        config: ControlConfig,
        spreading: TopicSpreading | None,
    ) -> None:
        """Without `spreading`, answers do not wait for other brokers."""
        self._broker_id = broker_id
        self._view = view
        self._changes = changes
        self._config = config
        self._is_strict = config.topic_defaults.is_strict
        self._spreading = spreading

    # -- showing ---------------------------------------------------------------------------------

    async def describe(self, request: DescribeConfigsRequest, _: RequestContext) -> ApiMessage:
        """Answer DescribeConfigs."""
        results, turns = [], Turns()
        for resource in {_key_of(row): row for row in request.resources}.values():
            await turns.pass_on()
            try:
                rows = self._rows(resource.resource_type, resource.resource_name)
            except TopicError as error:
                results.append(_answer(resource, error))
                continue
            asked = resource.configuration_keys  # an empty list or null requests all settings
            shown = [row for row in rows if not asked or row.name in asked]
            results.append(_answer(resource, None, configs=[_shown(row, request) for row in shown]))
        return DescribeConfigsResponse(results=results)

    def _rows(self, kind: int, name: str) -> Iterable[ConfigRow]:
        if kind == ResourceType.TOPIC:
            self._changes.check_name_form(name)
            record = self._view.topics.get(name)
            if record is None:
                raise unknown_topic(name)
            return topic_rows(record.configs, self._config.topic_defaults)
        if kind == ResourceType.BROKER:
            if name not in ("", str(self._broker_id)):
                text = f"this is broker {self._broker_id}: send the request to broker {name} itself"
                raise TopicError(ErrorCode.INVALID_REQUEST, text)
            if not name:
                return ()
            registered = self._view.brokers.get(self._broker_id)
            listeners = () if registered is None else registered.listeners
            return broker_rows(self._broker_id, self._config, listeners)
        text = f"resources of type {kind} have no settings: use 2 (topic) or 4 (broker)"
        raise TopicError(ErrorCode.INVALID_REQUEST, text)

    async def list_resources(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer ListConfigResources: topics and brokers. Version 0 lists client metrics only, and
        no other kind of resource has settings here.
        """
        kinds: Sequence[int] = [ResourceType.CLIENT_METRICS]
        if context.api_version > 0:
            kinds = list(dict.fromkeys(request.resource_types)) or list(ResourceType)
        if any(kind not in tuple(ResourceType) for kind in kinds):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        names = {
            ResourceType.TOPIC: sorted(self._view.topics),
            ResourceType.BROKER: [str(broker_id) for broker_id in sorted(self._view.brokers)],
        }
        resources = [
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in names.get(ResourceType(kind), ())
        ]
        return ListConfigResourcesResponse(config_resources=resources)

    # -- altering --------------------------------------------------------------------------------

    async def alter(self, request: AlterConfigsRequest, _: RequestContext) -> ApiMessage:
        """Answer AlterConfigs: replace all settings of a topic."""

        def change_of(resource: AlterConfigsRequest.AlterConfigsResource) -> ConfigChange:
            given = {row.name: row.value for row in resource.configs if row.value is not None}
            return _replacing(given, is_strict=self._is_strict)

        answers = await self._answers(request.resources, change_of, _Altered, request.validate_only)
        return AlterConfigsResponse(responses=answers)

    async def alter_incrementally(
        self, request: IncrementalAlterConfigsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer IncrementalAlterConfigs."""

        def change_of(resource: _Steps) -> ConfigChange | None:
            if _ends_throttles(resource):
                return None
            return _stepping(list(resource.configs), is_strict=self._is_strict)

        answers = await self._answers(
            request.resources, change_of, _AlteredIncrementally, request.validate_only
        )
        return IncrementalAlterConfigsResponse(responses=answers)

    async def _answers(
        self,
        resources: Sequence[ResourceT],
        change_of: Callable[[ResourceT], ConfigChange | None],
        kind: Callable[..., AnswerT],
        is_dry: bool,  # noqa: FBT001 - the field of the request
    ) -> list[AnswerT]:
        """Alter the settings of resources. `change_of` returns None for one without a change."""
        counts = Counter((row.resource_type, row.resource_name) for row in resources)
        answers, turns = list[AnswerT](), Turns()
        look_ups = iter(range(LOOK_UPS_MAX))
        for resource in resources:
            await turns.pass_on()
            name, refusal = resource.resource_name, None
            try:
                if counts[resource.resource_type, name] > 1:
                    raise TopicError(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
                change = change_of(resource)
                if change is not None:
                    self._check_alterable(resource, look_ups)
                    await self._apply(name, change, is_dry=is_dry)
            except TopicError as error:
                refusal = error
            answers.append(
                answer(kind, refusal, resource_type=resource.resource_type, resource_name=name)
            )
        await self._wait_until_shown(answers, is_dry=is_dry)
        return answers

    async def _wait_until_shown(
        self, answers: Sequence[_Altered | _AlteredIncrementally], *, is_dry: bool
    ) -> None:
        """Wait for the other brokers, so that whichever a client asks next shows the settings."""
        changed = [
            row.resource_name
            for row in answers
            if row.resource_type == ResourceType.TOPIC and row.error_code == ErrorCode.NONE
        ]
        if self._spreading is not None and not is_dry:
            await self._spreading.wait_for_settings(changed)

    def _check_alterable(self, resource: _AskedResource, look_ups: Iterator[int]) -> None:
        """Raise TopicError if no settings of a resource can be altered. Each topic that the view
        does not show takes one of the look-ups.
        """
        if resource.resource_type != ResourceType.TOPIC:
            text = "broker settings cannot be altered: edit its configuration, then restart it"
            raise TopicError(ErrorCode.INVALID_REQUEST, text)
        name = resource.resource_name
        if not name:
            raise TopicError(ErrorCode.INVALID_REQUEST, "the name of the topic is empty")
        if name not in self._view.topics and next(look_ups, None) is None:
            raise unknown_topic(name)

    async def _apply(self, name: str, change: ConfigChange, *, is_dry: bool) -> None:
        if is_dry:
            self._changes.changed_configs(name, change)
        else:
            await self._changes.set_configs(name, change)


def _replacing(given: Mapping[str, str], *, is_strict: bool) -> ConfigChange:
    def change(stored: Mapping[str, str]) -> Mapping[str, str]:
        check_configs(given, is_strict=is_strict)
        return {**given, **kept_configs(stored)}

    return change


def _ends_throttles(resource: _Steps) -> bool:
    """Return whether a request only deletes throttles of a broker: none is ever set, so nothing
    changes.
    """
    return resource.resource_type == ResourceType.BROKER and all(
        config.config_operation == StepKind.DELETE and config.name in MOVE_THROTTLES
        for config in resource.configs
    )


def _stepping(steps: Sequence[_Step], *, is_strict: bool) -> ConfigChange:
    def change(stored: Mapping[str, str]) -> Mapping[str, str]:
        names = [step.name for step in steps]
        if len(dict.fromkeys(names)) != len(names):
            raise TopicError(
                ErrorCode.INVALID_REQUEST, "a setting is named more than once: name each once"
            )
        changes = {step.name: _stepped(step, stored) for step in steps}
        return changed_configs(stored, changes, is_strict=is_strict)

    return change


def _stepped(step: _Step, stored: Mapping[str, str]) -> str | None:
    """Return the value of a setting after a step; None for its default."""
    kind, value = step.config_operation, step.value
    if kind == StepKind.DELETE:
        return None
    if kind not in tuple(StepKind):
        raise TopicError(
            ErrorCode.INVALID_REQUEST,
            f"{step.name}: operation {kind} is unknown, use 0 to 3 (SET, DELETE, APPEND, SUBTRACT)",
        )
    if value is None:
        text = f"{step.name} has no value: give one, or use DELETE to reset it to its default"
        raise TopicError(ErrorCode.INVALID_REQUEST, text)
    if kind == StepKind.SET:
        return value
    definition = DEFINITIONS.get(step.name)
    if definition is None or definition.kind is not ConfigType.LIST:
        text = f"{step.name} is not a list: use SET or DELETE instead of APPEND or SUBTRACT"
        raise TopicError(ErrorCode.INVALID_CONFIG, text)
    known = list_of(stored.get(step.name, definition.default or ""))
    given = list_of(value)
    if kind == StepKind.APPEND:
        return ",".join(dict.fromkeys(known + given))
    return ",".join(item for item in known if item not in given)


def _shown(row: ConfigRow, request: DescribeConfigsRequest) -> _Row:
    synonyms = row.synonyms if request.include_synonyms else ()
    return _Row(
        name=row.name,
        value=row.value,
        read_only=row.is_read_only,
        config_source=row.source,
        is_sensitive=False,
        synonyms=[
            _Row.DescribeConfigsSynonym(name=row.name, value=value, source=source)
            for value, source in synonyms
        ],
        config_type=row.kind,
        documentation=row.meaning if request.include_documentation else None,
    )


def _key_of(resource: _Resource) -> tuple[int, str, tuple[str, ...]]:
    """Return the key of a requested resource. Resources with the same key get one answer."""
    keys = tuple(resource.configuration_keys or ())
    return resource.resource_type, resource.resource_name, keys


def _answer(resource: _Resource, error: TopicError | None, **fields: object) -> _Result:
    kind, name = resource.resource_type, resource.resource_name
    return answer(_Result, error, resource_type=kind, resource_name=name, **fields)
