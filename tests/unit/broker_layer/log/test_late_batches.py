"""Tests of batches of a transaction that reach their log behind the transaction's marker."""

import asyncio

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    read_header,
)
from broker_layer.log.pending_batches import Appended
from broker_layer.log.topic_log import TopicLog
from broker_layer.transactions.values import TopicPartition
from broker_layer.transactions.verification import VerificationGuards
from tests.support.broker_layer.log_setting import LogSetting, append, batch, values

ORDERS = TopicPartition("orders", 0)


def written(value: bytes, sequence: int) -> bytearray:
    records = [Record(0, 1_000, None, value, ())]
    return build_batch(records, producer=Producer(7, 0, sequence), is_transactional=True)


def append_marker(log: TopicLog, kind: ControlKind) -> asyncio.Future[Appended]:
    return append(log, build_control_batch(kind, 7, 0, 5, 1_000), coordinator_epoch=5)


async def check_is_refused(answer: asyncio.Future[Appended], log: TopicLog) -> None:
    with pytest.raises(TopicError, match="no open transaction") as refusal:
        await answer
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not log.has_open_transaction(7, 0)
    await append(log, batch(b"of another producer"))
    assert log.last_stable_offset == log.high_watermark


async def test_batch_behind_a_marker_that_waits_for_a_ledger_is_refused(
    setting: LogSetting,
) -> None:
    await append(await setting.take_over(1), written(b"first", 0))
    log = await setting.take_over(2)
    marker = append_marker(log, ControlKind.ABORT)
    assert log.has_open_transaction(7, 0)
    late = append(log, written(b"late", 1))
    await marker
    await check_is_refused(late, log)
    await append(log, written(b"next", 1))  # it is confirmed
    await append_marker(log, ControlKind.COMMIT)
    assert [value for _, value in await values(log, committed=True)][1:] == [
        b"of another producer",
        b"next",
    ]


async def test_batch_behind_a_marker_that_waits_for_room_is_refused(setting: LogSetting) -> None:
    log = await setting.take_over(1, window_bytes_max=100_000)
    await append(log, written(b"first", 0))
    others = [append(log, batch(b"x" * 60_000))]
    while log.has_room:
        others.append(append(log, batch(b"x" * 60_000)))
    marker = append_marker(log, ControlKind.COMMIT)
    assert log.has_open_transaction(7, 0)
    late = append(log, written(b"late", 1))
    await asyncio.gather(marker, *others)
    await check_is_refused(late, log)


async def test_confirmation_is_asked_for_when_its_batch_is_admitted(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    guards = VerificationGuards()
    first, second = guards.begin(ORDERS, 7), guards.begin(ORDERS, 7)
    data = written(b"late", 0)
    late = log.append(read_header(data), data, may_open=first.holds)
    assert not late.done()
    guards.marker_written(ORDERS, 7)
    marker = append_marker(log, ControlKind.ABORT)
    await check_is_refused(late, log)
    await marker
    assert not second.holds()


async def test_repeated_batch_of_an_ended_transaction_is_answered(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, written(b"first", 0))
    await append_marker(log, ControlKind.COMMIT)
    data = written(b"first", 0)
    assert (await log.append(read_header(data), data)).base_offset == 0
