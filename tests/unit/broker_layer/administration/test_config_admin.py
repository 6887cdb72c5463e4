"""Settings of topics are shown and altered; those of brokers are only shown."""

import pytest

from broker_layer.administration.shown_configs import broker_rows
from broker_layer.control.control_config import ControlConfig
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.topic_config_table import NO_EFFECT
from broker_layer.log.topic_configs import TopicDefaults, log_config
from metadata.brokers.broker_registration import Listener
from tests.support.broker_layer.asking import Admin, topic


async def test_settings_are_shown_with_their_sources(admin: Admin) -> None:
    await admin.create(topic("a", configs={"retention.ms": "5000"}))

    shown = await admin.configs("a")

    assert shown["retention.ms"] == ("5000", False, 1)
    assert shown["segment.bytes"] == (str(1024**3), False, 5)
    assert shown["preallocate"] == ("false", False, 5)
    assert shown["remote.storage.enable"] == ("false", True, 5)
    assert "message.format.version" not in shown
    assert shown["replication.factor"] == ("1", True, 5)
    assert "quire.unclean" not in shown
    broker = await admin.configs("1", kind=4)
    assert broker["num.partitions"][0] == "1"
    assert broker["log.retention.ms"][0] == str(7 * 24 * 3600 * 1000)
    assert broker["inter.broker.protocol.version"] == ("3.9", True, 4)  # kafbat parses a number
    assert broker["advertised.listeners"] == ("PLAINTEXT://host-1:9001", True, 4)


async def test_settings_without_effect_are_stored_and_shown_as_such(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker_layer.control.topic_changes")
    configs = {"min.compaction.lag.ms": "90000000", "message.format.version": "2.8"}
    assert (await admin.create(topic("a", configs=configs)))[0].error_code == 0
    assert await admin.step("a", "flush.ms", "10") == 0
    assert "topic=a settings=flush.ms,message.format.version,min.compaction.lag.ms" in caplog.text

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="a", configuration_keys=[*configs, "retention.ms"]
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    shown = {
        config.name: (
            config.value,
            config.config_source,
            str(config.documentation).startswith(NO_EFFECT),
        )
        for config in answer.results[0].configs
    }
    assert shown == {
        "min.compaction.lag.ms": ("90000000", 1, True),
        "message.format.version": ("2.8", 1, True),
        "retention.ms": (str(7 * 24 * 3600 * 1000), 5, False),
    }


async def test_a_strict_broker_refuses_settings_without_effect(admin: Admin) -> None:
    await admin.create(topic("a"))
    defaults = TopicDefaults(replication_factor=1, is_strict=True)
    strict = Admin(admin.broker, ControlConfig(topic_defaults=defaults))
    assert await strict.step("a", "flush.ms", "10") == ErrorCode.INVALID_CONFIG
    assert (await strict.configs("a"))["flush.ms"][1]


async def test_named_settings_are_shown_and_no_names_mean_all(admin: Admin) -> None:
    await admin.create(topic("a"))

    shown = {}
    for count, keys in ((1, ["segment.ms", "none"]), (2, []), (3, None)):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name="a", configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource])
        answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse, 4)
        shown[count] = [config.name for config in answer.results[0].configs]

    assert shown[1] == ["segment.ms"]
    assert shown[2] == shown[3]
    assert "segment.bytes" in shown[2]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(2, "none", 3), (2, "", 17), (2, "a b", 17), (4, "7", 42), (8, "1", 42)],
)
async def test_resources_without_settings_are_refused(
    admin: Admin, kind: int, name: str, code: int
) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])

    for version in range(1, 5):
        answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse, version)
        assert answer.results[0].error_code == code


def test_an_address_of_ipv6_is_shown_in_brackets() -> None:
    listeners = Listener("PLAINTEXT", "h", 1), Listener("SSL", "::1", 2)
    rows = {row.name: row.value for row in broker_rows(1, ControlConfig(), listeners)}
    assert rows["advertised.listeners"] == "PLAINTEXT://h:1,SSL://[::1]:2"


async def test_the_last_policy_may_be_taken_away(admin: Admin) -> None:
    await admin.create(topic("a", configs={"retention.ms": "5000"}))
    assert await admin.step("a", "cleanup.policy", "delete", 3) == 0
    assert (await admin.configs("a"))["cleanup.policy"][0] == ""
    config = log_config(admin.broker.view.topics["a"].configs, TopicDefaults())
    assert (config.retention_ms, config.is_compacted, config.is_deletable) == (None, False, False)
    assert await admin.step("a", "message.timestamp.type", "") == ErrorCode.INVALID_CONFIG


async def test_settings_are_altered_separately(admin: Admin) -> None:
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
        ("retention.ms", None, 0, ErrorCode.INVALID_REQUEST),
        ("retention.ms", "1", 9, ErrorCode.INVALID_REQUEST),
        ("nothing", "1", 0, ErrorCode.INVALID_CONFIG),
        ("nothing", None, 1, ErrorCode.NONE),
        ("min.insync.replicas", "2", 0, ErrorCode.INVALID_CONFIG),
        ("replication.factor", "2", 0, ErrorCode.INVALID_CONFIG),
        ("quire.unclean", "0:1", 0, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_refused_steps_give_a_reason(
    admin: Admin, name: str, value: str | None, operation: int, code: ErrorCode
) -> None:
    await admin.create(topic("a"))
    before = await admin.configs("a")

    assert await admin.step("a", name, value, operation) == code
    assert await admin.configs("a") == before


@pytest.mark.parametrize(("name", "code"), [("", 42), ("a b", 17), ("absent", 3)])
async def test_only_topics_are_altered(admin: Admin, name: str, code: int) -> None:
    assert await admin.step(name, "retention.ms", "1") == code


async def test_brokers_are_not_configured_by_clients(admin: Admin) -> None:
    assert await admin.step("1", "num.partitions", "2", kind=4) == ErrorCode.INVALID_REQUEST
    assert await admin.step("1", "num.partitions", None, 1, kind=4) == ErrorCode.INVALID_REQUEST


async def test_throttles_of_reassignments_are_deleted_and_never_set(admin: Admin) -> None:
    name = "leader.replication.throttled.rate"
    assert await admin.step("1", name, None, 1, kind=4) == ErrorCode.NONE
    assert await admin.step("1", name, "1000", 0, kind=4) == ErrorCode.INVALID_REQUEST


async def test_alter_configs_replaces_all_settings(admin: Admin) -> None:
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
