"""Tests of log configurations derived from topic settings, and of refused settings."""

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_config_table import DEFINITIONS, NO_EFFECT
from broker_layer.log.topic_configs import (
    TopicDefaults,
    changed_configs,
    check_config,
    checked_log_config,
    log_config,
    without_effect,
)
from metadata.ledgers.ledger_metadata import QuorumMode

DEFAULTS = TopicDefaults()


def _refusal(**settings: str) -> str:
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(TopicError) as caught:
        checked_log_config(configs, DEFAULTS)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.text


def test_defaults_equal_kafka_defaults() -> None:
    config = log_config({}, DEFAULTS)

    assert config.quorum.mode is QuorumMode.IN_SYNC
    assert (config.quorum.ensemble, config.quorum.min_in_sync) == (3, 1)
    assert config.segment_bytes == 1024**3
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.retention_bytes is None
    assert config.max_message_bytes == 1048588
    assert not config.uses_append_time
    assert not config.unclean_recovery
    assert config.timestamp_before_max_ms is None
    assert config.timestamp_after_max_ms == 3600 * 1000


def test_every_default_is_accepted() -> None:
    for name, definition in DEFINITIONS.items():
        if definition.default is not None:
            check_config(name, definition.default)


def test_broker_defaults_override_built_in_ones() -> None:
    defaults = TopicDefaults(configs={"retention.ms": "5000", "segment.ms": "1000"})

    assert log_config({}, defaults).retention_ms == 5000
    assert log_config({"retention.ms": "-1"}, defaults).retention_ms is None
    assert log_config({}, defaults).segment_jitter_ms == 100


def test_compacted_topic_has_no_retention() -> None:
    config = log_config({"cleanup.policy": "compact", "retention.ms": "1"}, DEFAULTS)

    assert config.is_compacted
    assert config.retention_ms is None
    assert log_config({"cleanup.policy": "compact,delete"}, DEFAULTS).retention_ms is not None


def test_quorum_mode_defaults_to_majority() -> None:
    config = log_config({"replication.mode": "quorum"}, DEFAULTS)
    assert (config.quorum.ensemble, config.quorum.write, config.quorum.ack) == (3, 3, 2)

    stored = {"replication.mode": "quorum", "ack.quorum": "3", "replication.factor": "5"}
    config = log_config(stored, DEFAULTS)
    assert (config.quorum.ensemble, config.quorum.write, config.quorum.ack) == (5, 5, 3)


def test_unreachable_min_in_sync_is_refused() -> None:
    assert "replication factor is 3" in _refusal(min_insync_replicas="4")
    refusal = _refusal(
        replication_mode="quorum", min_insync_replicas="3", ack_quorum="2", write_quorum="3"
    )
    assert "ack.quorum is 2" in refusal


def test_broker_min_in_sync_is_lowered_to_replicas() -> None:
    defaults = TopicDefaults(configs={"min.insync.replicas": "2"})

    assert log_config({"replication.factor": "1"}, defaults).quorum.min_in_sync == 1
    assert log_config({"replication.factor": "3"}, defaults).quorum.min_in_sync == 2


def test_quorums_that_contradict_each_other_are_refused() -> None:
    assert "only one of them" in _refusal(replication_mode="quorum", write_quorum="2")
    assert "more than" in _refusal(replication_mode="quorum", ack_quorum="4")
    assert "needs replication.mode" in _refusal(ack_quorum="2")


def test_unknown_setting_is_refused_with_suggestion() -> None:
    assert "did you mean retention.ms?" in _refusal(retenton_ms="1")
    assert "docs/topics.md" in _refusal(zzzz="1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "1"),
        ("cleanup.policy", "vanish"),
        ("message.timestamp.type", ""),
        ("compression.type", "zip"),
        ("unclean.leader.election.enable", "maybe"),
        ("preallocate", "maybe"),
        ("remote.storage.enable", "true"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("max.compaction.lag.ms", "0"),
        ("flush.messages", "0"),
        ("max.message.bytes", str(100 * 1024**2)),
        ("replication.factor", "2"),
    ],
)
def test_unsupported_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(TopicError):
        check_config(name, value)


WITHOUT_EFFECT = {
    "min.compaction.lag.ms": "86400000",
    "max.compaction.lag.ms": "1",
    "delete.retention.ms": "5",
    "min.cleanable.dirty.ratio": "0.01",
    "compression.type": "zstd",
    "flush.ms": "1000",
    "flush.messages": "1",
    "segment.index.bytes": "1024",
    "leader.replication.throttled.replicas": "0:1,1:2",
    "message.format.version": "2.8-IV1",
    "message.downconversion.enable": "false",
    "message.timestamp.difference.max.ms": "1000",
}


def test_settings_without_effect_are_accepted_unless_strict() -> None:
    checked_log_config(WITHOUT_EFFECT, DEFAULTS)
    assert without_effect({**WITHOUT_EFFECT, "retention.ms": "1"}) == list(WITHOUT_EFFECT)
    for name, value in WITHOUT_EFFECT.items():
        assert DEFINITIONS[name].meaning.startswith(NO_EFFECT)
        with pytest.raises(TopicError, match="it is always") as caught:
            checked_log_config({name: value}, TopicDefaults(is_strict=True))
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(TopicError):
            changed_configs({}, {name: value}, is_strict=True)
        check_config(name, str(DEFINITIONS[name].default), is_strict=True)


def test_fixed_settings_accept_their_value() -> None:
    check_config("remote.storage.enable", "false")


def test_changes_replace_add_and_remove() -> None:
    current = {"retention.ms": "1", "segment.ms": "1000"}

    assert changed_configs(current, {"retention.ms": None, "segment.ms": "2000"}) == {
        "segment.ms": "2000"
    }
    with pytest.raises(TopicError):
        changed_configs(current, {"nonsense": "1"})
