"""Tests of a closed ledger that no bookie can return: a read names it and says what to do.

Records after it can be read once the log begins there.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_log import TopicLog
from broker_layer.server.service_tools import UnreadableRecords
from ledger_client import EntryLostError, Quorum
from metadata.errors import StoreUnavailableError
from metadata.ids import UpdateToken
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition import PartitionSegment
from quire.server.server_log import LOGGER, ServerLog
from tests.support.broker_layer.log_setting import CONFIG, KEY, LogSetting, append, batch, values
from tests.support.ledger_client.cluster import TestCluster
from tests.until import until

ALONE = replace(CONFIG, quorum=Quorum(1, 1, 1), segment_bytes=2_000)


@pytest.fixture
async def setting() -> AsyncIterator[LogSetting]:
    cluster = TestCluster()
    await cluster.add_bookie()
    setting = LogSetting(cluster)
    yield setting
    await setting.aclose()
    await cluster.aclose()


async def log_with_a_lost_ledger(setting: LogSetting) -> tuple[TopicLog, PartitionSegment]:
    """Return a log of two ledgers, and the segment of the first one, which is lost."""
    cluster = setting.cluster
    client = cluster.client(add_timeout_s=0.5, call_timeout_s=0.2)
    services = replace(setting.services(tail_bytes=100), client=client)
    log = await TopicLog.take_over(services, "orders", KEY, 1, ALONE, on_failed=lambda: None)
    setting.logs.append(log)
    (holder,) = cluster.bookies
    await append(log, batch(b"lost" * 100))
    await cluster.add_bookie()
    await holder.unregister()
    number = 0
    while len(await log._ledger_list.segments()) == 1:
        number += 1
        await append(log, batch(b"%d" % number * 900))
        await until(lambda: log.high_watermark == log.log_end_offset)
    await append(log, batch(b"kept"))
    await holder.stop()
    first, *_ = await log._ledger_list.segments()
    return log, first


async def test_read_of_lost_ledger_names_it_until_log_starts_after_it(
    setting: LogSetting, caplog: pytest.LogCaptureFixture
) -> None:
    log, lost = await log_with_a_lost_ledger(setting)
    assert lost.end_offset is not None
    with pytest.raises(TopicError) as caught:
        await values(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    with caplog.at_level(logging.WARNING, LOGGER):
        UnreadableRecords(ServerLog(lambda: 0.0)).note("orders", 0, caught.value)
    (record,) = caplog.records
    told = getattr(record, "fields", {})
    assert f"ledger {lost.ledger_id} cannot be read" in told["why"]
    assert "quire topic trim orders --partition 0 --ledger ID --yes" in told["try_next"]

    assert await log.delete_records(lost.end_offset) == lost.end_offset
    assert (await values(log, lost.end_offset))[-1][1] == b"kept"


async def test_records_whose_loss_was_accepted_are_not_skipped(
    setting: LogSetting, caplog: pytest.LogCaptureFixture
) -> None:
    log, lost = await log_with_a_lost_ledger(setting)
    ledgers = LedgerStore(MemoryMetadataStore(setting.cluster.server), Random(5), lambda: 5)
    ledger, version = await ledgers.get(lost.ledger_id, fresh=True)
    assert ledger.last_entry_id is not None
    token = UpdateToken(bytes(16))
    await ledgers.compare_and_set(ledger.with_lost([(0, ledger.last_entry_id)], 5, token), version)
    with pytest.raises(TopicError) as caught:
        await values(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(caught.value.__cause__, EntryLostError)
    with caplog.at_level(logging.WARNING, LOGGER):
        UnreadableRecords(ServerLog(lambda: 0.0)).note("orders", 0, caught.value)
    fields = getattr(caplog.records[-1], "fields", {})
    assert "records are lost for good" in fields["why"]
    assert fields["try_next"] == "quire topic trim orders --partition 0 --ledger ID --yes"
    assert lost.end_offset is not None
    assert (await values(log, lost.end_offset))[-1][1] == b"kept"


def test_log_lines_are_limited_and_only_for_missing_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unreadable = UnreadableRecords(ServerLog(lambda: 0.0))
    with caplog.at_level(logging.WARNING, LOGGER):
        unreadable.note("orders", 0, TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere"))
        assert caplog.records == []
        for _ in range(100):
            missing = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "the list cannot be read now")
            missing.__cause__ = StoreUnavailableError("here", "down")
            unreadable.note("orders", 0, missing)
    assert len(caplog.records) < 10
    assert "try_next" not in getattr(caplog.records[0], "fields", {})
