"""Tests of full ledgers that grow, up to a limit, while no next ledger can be created."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.log_services import LogServices
from broker_layer.log.state_log import StateLog
from broker_layer.log.topic_log import TopicLog
from tests.support.broker_layer.log_setting import KEY, LogSetting, append, batch, small, values
from tests.support.ledger_client.cluster import TestCluster
from tests.support.metadata.scripted_faults import ScriptedFaults, is_write
from tests.until import until

SMALL = small(segment_bytes=2_000)
GROWTH_BYTES_MAX = 3_000


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ScriptedFaults:
    monkeypatch.setattr("broker_layer.log.roll_protocol.RETRY_MAX_S", 0.05)
    return ScriptedFaults(is_write)


@pytest.fixture
async def setting(faults: ScriptedFaults) -> AsyncIterator[LogSetting]:
    cluster = TestCluster(faults)
    for _ in range(3):
        await cluster.add_bookie()
    setting = LogSetting(cluster)
    yield setting
    faults.is_away = False
    await setting.aclose()
    await cluster.aclose()


def services(setting: LogSetting) -> LogServices:
    return replace(setting.services(), growth_bytes_max=GROWTH_BYTES_MAX)


async def take_over(setting: LogSetting, state: dict[bytes, None], epoch: int) -> StateLog:
    return await StateLog.take_over(
        services(setting),
        KEY,
        epoch,
        SMALL,
        load=lambda record: state.update({record: None}),
        snapshot=lambda: list(state),
        on_failed=lambda: setting.failed.append(epoch),
    )


async def refused(attempt: Callable[[], Awaitable[object]]) -> bool:
    try:
        await attempt()
    except TopicError:
        await asyncio.sleep(0.01)
        return True
    return False


def record(number: int) -> bytes:
    return b"%0100d" % number


def put(log: StateLog, state: dict[bytes, None], number: int) -> asyncio.Future[None]:
    answer = log.append(record(number))
    state[record(number)] = None
    return answer


async def test_coordinator_continues_while_no_ledger_can_be_created(
    setting: LogSetting, faults: ScriptedFaults
) -> None:
    state: dict[bytes, None] = {}
    log = await take_over(setting, state, 1)
    for number in range(19):
        await put(log, state, number)
    old = log._roller.ledger
    faults.is_away = True
    for number in range(19, 40):
        await put(log, state, number)
    assert log.failure is None
    assert log._roller.ledger is old

    faults.is_away = False
    while await refused(lambda: log.append(record(39))) or log._roller.ledger is old:
        pass
    await log.aclose()
    loaded: dict[bytes, None] = {}
    after = await take_over(setting, loaded, 2)
    assert loaded == state
    await after.aclose()


async def test_coordinator_ledger_grows_up_to_limit(
    setting: LogSetting, faults: ScriptedFaults
) -> None:
    log = await take_over(setting, {}, 1)
    await log.append(b"first")
    faults.is_away = True

    async def fill() -> None:
        while True:
            await log.append(record(1))

    with pytest.raises(TopicError) as refusal:
        await fill()
    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert SMALL.segment_bytes + GROWTH_BYTES_MAX <= log._roller.written_bytes < 6_000
    assert log.failure is None

    faults.is_away = False
    while await refused(lambda: log.append(record(2))):
        pass
    await log.aclose()


async def test_coordinator_survives_while_next_ledger_cannot_be_listed(
    setting: LogSetting, faults: ScriptedFaults
) -> None:
    state: dict[bytes, None] = {}
    log = await take_over(setting, state, 1)
    for number in range(22):
        await put(log, state, number)
    await until(lambda: log._roller._next is not None)
    faults.is_away = True
    waiting = put(log, state, 22)
    await asyncio.sleep(0.2)
    assert not waiting.done()
    assert log.failure is None
    faults.is_away = False
    await waiting
    await log.aclose()
    loaded: dict[bytes, None] = {}
    await (await take_over(setting, loaded, 2)).aclose()
    assert loaded == state


async def test_topic_ledger_grows_up_to_limit(setting: LogSetting, faults: ScriptedFaults) -> None:
    log = await TopicLog.take_over(services(setting), "orders", KEY, 1, SMALL)
    setting.logs.append(log)
    await append(log, batch(b"first"))
    faults.is_away = True
    sent = 1

    async def fill() -> None:
        nonlocal sent
        while True:
            await append(log, batch(b"x" * 200))
            sent += 1

    with pytest.raises(TopicError) as refusal:
        await fill()
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert SMALL.segment_bytes + GROWTH_BYTES_MAX <= log.size_bytes < 6_000
    assert log.failure is None

    faults.is_away = False
    while await refused(lambda: append(log, batch(b"last"))):
        pass
    found = await values(log)
    assert len(found) == sent + 1
    assert found[-1] == (sent, b"last")


@pytest.fixture
def few_in_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata.topics.partition.SEGMENTS_IN_RECORD_MAX", 4)
    monkeypatch.setattr("metadata.topics.partition.SEGMENTS_PER_CHUNK", 2)


@pytest.mark.usefixtures("few_in_record")
async def test_ledgers_in_chunks_count_for_size_and_retention(setting: LogSetting) -> None:
    config = small(segment_bytes=300)
    log = await setting.take_over(1, config)
    while log._ledger_list.record.next_chunk < 3:
        await append(log, batch(b"x" * 200))
    segments = await log._ledger_list.segments()
    assert len(segments) > len(log._ledger_list.record.segments)
    listed = sum(segment.bytes or 0 for segment in segments)
    assert await log.measure() == log.size_bytes == listed + log._roller.written_bytes
    await log.aclose()

    after = await setting.take_over(2, config)
    size = await after.measure()
    assert size > sum(segment.bytes or 0 for segment in after._ledger_list.record.segments)
    after.set_config(replace(config, retention_bytes=size // 2))
    assert await after.enforce_retention(setting.now_ms) > 0
    assert after._ledger_list.record.first_chunk > 0
    assert size // 2 <= await after.measure() < size // 2 + 1_000


async def test_open_ledger_counts_for_retention(setting: LogSetting) -> None:
    config = small(segment_bytes=2_000)
    log = await setting.take_over(1, config)
    while len(await log._ledger_list.segments()) < 2:
        await append(log, batch(b"x" * 300))
    while log._roller.written_bytes < 1_000:
        await append(log, batch(b"x" * 300))
    log.set_config(replace(config, retention_bytes=1_000))
    assert await log.enforce_retention(setting.now_ms) == 1
