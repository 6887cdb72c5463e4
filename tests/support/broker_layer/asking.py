"""Client of a broker's administration APIs, through encoded requests."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from broker_layer.administration.reassignments import MovingLedgers
from broker_layer.administration.topic_admin_handlers import AdminParts, handlers
from broker_layer.control.bookie_states import LiveBookies
from broker_layer.control.control_config import ControlConfig
from broker_layer.handlers import RequestContext
from broker_layer.kafka.messages import (
    ApiMessage,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from metadata.registry.directory import BookieDirectory
from metadata.topics.replica_numbers import ReplicaNumbers
from tests.support.broker_layer.control_setting import CONFIG, LISTENER, Broker
from tests.until import until

if TYPE_CHECKING:
    from broker_layer.handlers import Handler

MessageT = TypeVar("MessageT", bound="ApiMessage")
Creatable = CreateTopicsRequest.CreatableTopic
Config = Creatable.CreatableTopicConfig
Assignment = Creatable.CreatableReplicaAssignment
AskedTopic = MetadataRequest.MetadataRequestTopic
NO_ID = UUID(int=0)


class Admin:
    """Sends encoded requests to one broker, as a client does."""

    def __init__(self, broker: Broker, config: ControlConfig = CONFIG) -> None:
        self.broker = broker
        self.directory = BookieDirectory(broker.store, Random(1), jitter_s=0.0)
        numbers = ReplicaNumbers(broker.store, Random(2))
        self.bookies = LiveBookies(self.directory, numbers)
        self.handlers: dict[int, Handler] = handlers(
            AdminParts(
                broker.view,
                broker.topics,
                broker.manager,
                broker.changes,
                numbers,
                self.bookies,
                broker.health,
                MovingLedgers(
                    broker.ledgers,
                    broker.repair_jobs,
                    broker.states,
                    numbers,
                    lambda: asyncio.get_running_loop().time(),
                ),
                config,
                "cluster-1",
            )
        )

    async def start(self) -> None:
        await self.directory.start()
        self.bookies.start()
        await until(lambda: len(self.bookies.numbers()) == self.bookies.count())

    async def aclose(self) -> None:
        await self.bookies.aclose()
        await self.directory.aclose()

    async def ask(
        self, key: ApiKey, request: ApiMessage, kind: type[MessageT], version: int | None = None
    ) -> MessageT:
        version = ADVERTISED[key].max if version is None else version
        context = RequestContext(version, "client", "host", LISTENER, 1)
        decoded = decode_request(key, version, bytes(encode_request(request, version)))
        answer = await self.handlers[key](decoded, context)
        body = answer if isinstance(answer, bytes) else bytes(encode_response(answer, version))
        response = decode_response(key, version, body)
        assert isinstance(response, kind)
        return response

    async def create(
        self, *topics: Creatable, is_dry: bool = False, version: int | None = None
    ) -> list[CreateTopicsResponse.CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=is_dry)
        answer = await self.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, version)
        return list(answer.topics)

    async def metadata(
        self, *names: str, version: int | None = None, creates: bool = True
    ) -> MetadataResponse:
        topics = [AskedTopic(name=name, topic_id=NO_ID) for name in names] or None
        if version == 0 and topics is None:
            topics = []
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
        return await self.ask(ApiKey.METADATA, request, MetadataResponse, version)

    async def configs(self, name: str, kind: int = 2) -> dict[str, tuple[str | None, bool, int]]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        answer = await self.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
        assert answer.results[0].error_code == 0
        return {
            config.name: (config.value, config.read_only, config.config_source)
            for config in answer.results[0].configs
        }

    async def step(
        self, name: str, setting: str, value: str | None, operation: int = 0, *, kind: int = 2
    ) -> int:
        steps = IncrementalAlterConfigsRequest.AlterConfigsResource
        resource = steps(
            resource_type=kind,
            resource_name=name,
            configs=[steps.AlterableConfig(name=setting, config_operation=operation, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse
        )
        return answer.responses[0].error_code


def topic(
    name: str,
    partitions: int = -1,
    replication: int = -1,
    configs: dict[str, str] | None = None,
    assigned: list[list[int]] | None = None,
) -> Creatable:
    return Creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            Assignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(assigned or [])
        ],
        configs=[Config(name=key, value=value) for key, value in (configs or {}).items()],
    )
