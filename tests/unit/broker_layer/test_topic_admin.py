"""Kafka's administration of topics, over real stores, in every version that is served."""

from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import pytest

from broker_layer.control_config import ControlConfig
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ApiMessage,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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
from broker_layer.live_bookies import LiveBookies
from broker_layer.request_context import RequestContext
from broker_layer.topic_admin_handlers import AdminParts, handlers
from metadata.directory import BookieDirectory
from metadata.replica_numbers import REPLICA_ID_FIRST, ReplicaNumbers
from tests.unit.broker_layer.control_setting import CONFIG, LISTENER, Broker, Setting, until
from tests.unit.broker_layer.log_setting import append, batch

if TYPE_CHECKING:
    from broker_layer.handlers import Handler

MessageT = TypeVar("MessageT", bound="ApiMessage")
Creatable = CreateTopicsRequest.CreatableTopic
Config = Creatable.CreatableTopicConfig
Assignment = Creatable.CreatableReplicaAssignment
AskedTopic = MetadataRequest.MetadataRequestTopic
NO_ID = UUID(int=0)


class Admin:
    """Asks one broker, by bytes, as a client would."""

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
        context = RequestContext(int(key), version, "client", "host", LISTENER, 1)
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
            each.name: (each.value, each.read_only, each.config_source)
            for each in answer.results[0].configs
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


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.start(3)
    yield setting
    await setting.aclose()


@pytest.fixture
async def admin(setting: Setting) -> AsyncIterator[Admin]:
    admin = Admin(await setting.broker(1))
    await admin.start()
    yield admin
    await admin.aclose()


# -- creation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_in_every_version(admin: Admin, version: int) -> None:
    (answer,) = await admin.create(topic("orders", 3, 2), version=version)

    assert (answer.name, answer.error_code) == ("orders", ErrorCode.NONE)
    record = admin.broker.view.topics["orders"]
    assert len(record.partitions) == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 2)
        assert any(each.name == "retention.ms" for each in answer.configs or [])
    if version >= 7:
        assert answer.topic_id.bytes == record.topic_id


async def test_minus_one_asks_for_the_defaults(admin: Admin) -> None:
    (answer,) = await admin.create(topic("orders"))

    assert (answer.num_partitions, answer.replication_factor) == (1, 1)


async def test_validating_stores_nothing(admin: Admin) -> None:
    (answer,) = await admin.create(topic("orders", 2), is_dry=True)
    assert answer.error_code == ErrorCode.NONE
    (refused,) = await admin.create(topic("orders", 0), is_dry=True)

    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert not admin.broker.view.topics


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("th.ere"), ErrorCode.NONE),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (topic("new", configs={"min.insync.replicas": "2"}), ErrorCode.INVALID_CONFIG),
        (topic("new", configs={"retenshun.ms": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("new", 2, -1, assigned=[[1]]), ErrorCode.INVALID_REQUEST),
        (topic("new", assigned=[[7]]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1], []]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1, 1]]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1], [1]]), ErrorCode.NONE),
    ],
)
async def test_each_refusal_has_its_code(admin: Admin, wanted: Creatable, code: ErrorCode) -> None:
    await admin.create(topic("there"), topic("a.b"))

    (answer,) = await admin.create(wanted)

    assert answer.error_code == code
    assert bool(answer.error_message) == (code is not ErrorCode.NONE)


async def test_a_name_given_twice_is_refused_and_others_are_made(admin: Admin) -> None:
    answers = await admin.create(topic("a"), topic("b"), topic("a", 2))

    assert sorted((each.name, each.error_code) for each in answers) == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


async def test_a_quorum_topic_has_the_replicas_that_it_asks_for(admin: Admin) -> None:
    (answer,) = await admin.create(
        topic("orders", configs={"replication.mode": "quorum", "write.quorum": "3"})
    )

    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 3)
    assert (await admin.configs("orders"))["ack.quorum"][0] == "2"


async def test_partitions_are_spread_over_all_brokers(setting: Setting, admin: Admin) -> None:
    await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)

    await admin.create(topic("a", 1), topic("b", 1), topic("c", 4))

    leaders = [admin.broker.leaders(name) for name in ("a", "b", "c")]
    assert leaders[0] != leaders[1]
    assert sorted(leaders[2]) == [1, 1, 2, 2]


# -- deletion and partitions ---------------------------------------------------------------------


async def test_topics_are_deleted_by_name_and_by_id(admin: Admin) -> None:
    await admin.create(topic("a"), topic("b"))
    topic_id = UUID(bytes=bytes(admin.broker.view.topics["b"].topic_id))
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[
            state(name="a", topic_id=NO_ID),
            state(name=None, topic_id=topic_id),
            state(name=None, topic_id=UUID(int=5)),
            state(name="c", topic_id=NO_ID),
            state(name="a", topic_id=topic_id),
        ],
        timeout_ms=1000,
    )

    answer = await admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)

    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert not admin.broker.view.topics


@pytest.mark.parametrize("version", range(1, 6))
async def test_old_versions_delete_by_name(admin: Admin, version: int) -> None:
    await admin.create(topic("a"))
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000)

    answer = await admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version)

    assert [(each.name, each.error_code) for each in answer.responses] == [("a", 0), ("b", 3)]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(admin: Admin, version: int) -> None:
    await admin.create(topic("a", 2))
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    given = asked.CreatePartitionsAssignment
    request = CreatePartitionsRequest(
        topics=[
            asked(name="a", count=4, assignments=None),
            asked(name="b", count=4, assignments=None),
        ],
        timeout_ms=1000,
        validate_only=False,
    )
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version)

    assert [each.error_code for each in answer.results] == [0, 3]
    assert len(admin.broker.view.topics["a"].partitions) == 4
    for row, code in (
        (asked(name="a", count=4, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (asked(name="a", count=6, assignments=[given(broker_ids=[1])]), 39),
        (asked(name="a", count=5, assignments=[given(broker_ids=[9])]), 39),
        (asked(name="a", count=5, assignments=[given(broker_ids=[1])]), 0),
    ):
        request = CreatePartitionsRequest(topics=[row], timeout_ms=1000, validate_only=True)
        answer = await admin.ask(
            ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version
        )
        assert answer.results[0].error_code == code
    assert len(admin.broker.view.topics["a"].partitions) == 4


# -- metadata ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13))
async def test_metadata_in_every_version(admin: Admin, version: int) -> None:
    await admin.create(topic("a", 2), topic("b"))

    for answer in (
        await admin.metadata(version=version),
        await admin.metadata("a", "b", version=version),
    ):
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (1, "host-1", 9001)
        ]
        assert [each.name for each in answer.topics] == ["a", "b"]
        partition = answer.topics[0].partitions[1]
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert partition.replica_nodes == partition.isr_nodes
        assert [each >= REPLICA_ID_FIRST for each in partition.replica_nodes] == [True]
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == "cluster-1"


async def test_no_topics_are_told_where_none_is_asked_for(admin: Admin) -> None:
    await admin.create(topic("a"))
    request = MetadataRequest(topics=[], allow_auto_topic_creation=True)

    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse, 4)

    assert list(answer.topics) == []


async def test_topics_are_found_by_id(admin: Admin) -> None:
    await admin.create(topic("a"))
    topic_id = UUID(bytes=bytes(admin.broker.view.topics["a"].topic_id))
    request = MetadataRequest(
        topics=[
            AskedTopic(name=None, topic_id=topic_id),
            AskedTopic(name=None, topic_id=UUID(int=9)),
        ]
    )

    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse)

    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_asking_makes_topics_where_that_is_allowed(setting: Setting, admin: Admin) -> None:
    refused = await admin.metadata("a", "a b", creates=False)
    assert [each.error_code for each in refused.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]

    made = await admin.metadata("a", "a b")
    assert [each.error_code for each in made.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert made.topics[0].partitions[0].leader_id == 1

    strict = Admin(admin.broker, ControlConfig(creates_topics=False))
    answer = await strict.metadata("c")
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_what_is_cached_follows_every_change(admin: Admin) -> None:
    assert [each.name for each in (await admin.metadata()).topics] == []
    await admin.create(topic("a"))
    assert [each.name for each in (await admin.metadata()).topics] == ["a"]
    assert [each.name for each in (await admin.metadata()).topics] == ["a"]


async def test_a_led_partition_shows_the_bookies_of_its_ledger(admin: Admin) -> None:
    await admin.create(topic("a", 1, 3))
    await append(await admin.broker.log("a"), batch(b"one"))

    partition = (await admin.metadata("a")).topics[0].partitions[0]

    assert sorted(partition.replica_nodes) == [REPLICA_ID_FIRST + n for n in range(3)]
    assert sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
    assert partition.offline_replicas == []


# -- cluster and coordinators --------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster_is_described(admin: Admin, version: int) -> None:
    answer = await admin.ask(
        ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse, version
    )

    assert (answer.cluster_id, answer.controller_id) == ("cluster-1", 1)
    assert [each.broker_id for each in answer.brokers] == [1]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("kind", [0, 1])
async def test_coordinators_are_found_and_their_topics_made(
    admin: Admin, version: int, kind: int
) -> None:
    request = FindCoordinatorRequest(key="group", key_type=kind, coordinator_keys=["group", "b"])

    answer = await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, version)

    name = "__transaction_state" if kind and version else "__consumer_offsets"
    record = admin.broker.view.topics[name]
    assert (record.is_internal, len(record.partitions)) == (True, 2)
    found = [answer] if version < 4 else list(answer.coordinators)
    assert [(each.error_code, each.node_id, each.port) for each in found] == [(0, 1, 9001)] * len(
        found
    )


async def test_there_are_two_kinds_of_coordinators(admin: Admin) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a"])

    answer = await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)

    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_internal_topics_keep_their_partitions_and_stay(admin: Admin) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a"])
    await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    more = CreatePartitionsRequest(
        topics=[asked(name="__consumer_offsets", count=9, assignments=None)], timeout_ms=1
    )
    grown = await admin.ask(ApiKey.CREATE_PARTITIONS, more, CreatePartitionsResponse)
    gone = await admin.ask(
        ApiKey.DELETE_TOPICS,
        DeleteTopicsRequest(topic_names=["__consumer_offsets"]),
        DeleteTopicsResponse,
        3,
    )

    assert grown.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    assert gone.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_log_directories_tell_sizes(admin: Admin) -> None:
    await admin.create(topic("a"), topic("b"))
    await append(await admin.broker.log("a"), batch(b"x" * 1000))
    await admin.broker.log("b")
    request = DescribeLogDirsRequest(topics=None)

    answer = await admin.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)

    sizes = {each.name: each.partitions[0].partition_size for each in answer.results[0].topics}
    assert sizes["a"] > 1000
    assert sizes["b"] < 1000
    some = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(topics=[some(topic="b", partitions=[0, 1])])
    answer = await admin.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
    assert [each.name for each in answer.results[0].topics] == ["b"]


# -- settings ------------------------------------------------------------------------------------


async def test_settings_are_shown_with_their_sources(admin: Admin) -> None:
    await admin.create(topic("a", configs={"retention.ms": "5000"}))

    shown = await admin.configs("a")

    assert shown["retention.ms"] == ("5000", False, 1)
    assert shown["segment.bytes"] == (str(1024**3), False, 5)
    assert shown["preallocate"] == ("false", True, 5)
    assert shown["replication.factor"] == ("1", True, 1)
    assert "quire.unclean" not in shown
    broker = await admin.configs("1", kind=4)
    assert broker["num.partitions"][0] == "1"
    assert broker["log.retention.ms"][0] == str(7 * 24 * 3600 * 1000)


@pytest.mark.parametrize(("kind", "name"), [(2, "none"), (4, "7"), (8, "1")])
async def test_what_has_no_settings_is_said_so(admin: Admin, kind: int, name: str) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])

    for version in range(1, 5):
        answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse, version)
        assert answer.results[0].error_code != 0


async def test_settings_are_altered_one_by_one(admin: Admin) -> None:
    await admin.create(topic("a", configs={"retention.ms": "5000"}))

    assert await admin.step("a", "retention.bytes", "77") == 0
    assert await admin.step("a", "cleanup.policy", "compact", 2) == 0
    shown = await admin.configs("a")
    assert shown["retention.bytes"][0] == "77"
    assert shown["cleanup.policy"][0] == "delete,compact"
    assert await admin.step("a", "cleanup.policy", "delete", 3) == 0
    assert await admin.step("a", "retention.ms", None, 1) == 0
    shown = await admin.configs("a")
    assert shown["cleanup.policy"][0] == "compact"
    assert shown["retention.ms"] == (str(7 * 24 * 3600 * 1000), False, 5)
    assert shown["replication.factor"][0] == "1"


@pytest.mark.parametrize(
    ("name", "value", "operation", "code"),
    [
        ("retention.ms", "x", 0, ErrorCode.INVALID_CONFIG),
        ("retention.ms", "1", 2, ErrorCode.INVALID_CONFIG),
        ("retention.ms", None, 0, ErrorCode.INVALID_CONFIG),
        ("nothing", None, 1, ErrorCode.INVALID_CONFIG),
        ("min.insync.replicas", "2", 0, ErrorCode.INVALID_CONFIG),
        ("replication.factor", "2", 0, ErrorCode.INVALID_CONFIG),
        ("cleanup.policy", "delete", 3, ErrorCode.INVALID_CONFIG),
        ("quire.unclean", "0:1", 0, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_settings_that_cannot_be_are_refused(
    admin: Admin, name: str, value: str | None, operation: int, code: ErrorCode
) -> None:
    await admin.create(topic("a"))
    before = await admin.configs("a")

    assert await admin.step("a", name, value, operation) == code
    assert await admin.configs("a") == before


async def test_brokers_are_not_configured_by_clients(admin: Admin) -> None:
    assert await admin.step("1", "num.partitions", "2", kind=4) == ErrorCode.INVALID_REQUEST


async def test_the_older_way_replaces_all_settings(admin: Admin) -> None:
    await admin.create(topic("a", 1, 2, configs={"retention.ms": "5000"}))
    resources = AlterConfigsRequest.AlterConfigsResource

    async def alter(name: str, value: str, *, is_dry: bool, version: int) -> int:
        config = resources.AlterableConfig(name=name, value=value)
        resource = resources(resource_type=2, resource_name="a", configs=[config])
        request = AlterConfigsRequest(resources=[resource], validate_only=is_dry)
        answer = await admin.ask(ApiKey.ALTER_CONFIGS, request, AlterConfigsResponse, version)
        return answer.responses[0].error_code

    for version in range(3):
        assert await alter("segment.ms", "1000", is_dry=True, version=version) == 0
    assert (await admin.configs("a"))["retention.ms"][0] == "5000"
    assert await alter("segment.ms", "1000", is_dry=False, version=2) == 0
    shown = await admin.configs("a")
    assert shown["retention.ms"][2] == 5
    assert shown["segment.ms"][0] == "1000"
    assert shown["replication.factor"][0] == "2"
    assert await alter("segment.ms", "no", is_dry=False, version=2) == ErrorCode.INVALID_CONFIG


# -- elections -----------------------------------------------------------------------------------


async def elect(
    admin: Admin, *partitions: int, kind: int = 0, version: int = 2, topic_name: str = "a"
) -> list[int]:
    rows = [ElectLeadersRequest.TopicPartitions(topic=topic_name, partitions=list(partitions))]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1000)
    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse, version)
    return [
        each.error_code for row in answer.replica_election_results for each in row.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
async def test_preferred_leaders_are_elected(setting: Setting, admin: Admin, version: int) -> None:
    await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)
    await admin.create(topic("a", 2))
    record = admin.broker.view.topics["a"]
    assert await elect(admin, 0, 7, version=version) == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    await admin.broker.controller.aclose()
    moved = await admin.broker.topics.change("a", lambda known: known.with_leader(0, 2))
    admin.broker.view.learn(moved)

    assert await elect(admin, 0, version=version) == [0]

    assert admin.broker.leaders("a") == [each.preferred for each in record.partitions]


async def test_who_asks_for_all_hears_only_of_what_was_needed(admin: Admin) -> None:
    await admin.create(topic("a", 2))
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)

    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)

    assert list(answer.replica_election_results) == []


async def test_an_unclean_leadership_is_noted_for_its_epoch(admin: Admin) -> None:
    await admin.create(topic("a"))
    log = await admin.broker.log("a")

    assert await elect(admin, 0, kind=1) == [0]

    await until(lambda: admin.broker.epochs("a") == [log.leader_epoch + 1])
    anew = await admin.broker.log("a")
    await until(lambda: admin.broker.leads("a"))
    assert admin.broker.view.topics["a"].configs["quire.unclean"] == f"0:{log.leader_epoch + 1}"
    await until(lambda: admin.broker.manager.log_of("a", 0).config.unclean_recovery)
    assert anew is not None
