"""Tests of a full ledger whose close has an unknown outcome, for a topic and for a state."""

import asyncio
from dataclasses import replace

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import StateLog
from ledger_client.client import LedgerClient
from ledger_client.errors import MetadataUnavailableError
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.ids import EntryId
from tests.support.broker_layer.log_setting import KEY, LogSetting, append, batch, small, values
from tests.until import until

SMALL = small(segment_bytes=500)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the outcome of every writer's close unknown; return the ids of these ledgers."""
    closed: list[int] = []

    async def aclose(writer: LedgerWriter, *, timeout: float | None = None) -> None:
        await until(lambda: writer.last_confirmed == writer.last_pushed)
        closed.append(writer.id)
        raise MetadataUnavailableError("test", ledger_id=writer.id, outcome="unknown")

    monkeypatch.setattr(LedgerWriter, "aclose", aclose)
    monkeypatch.setattr("broker_layer.log.roll_protocol.RETRY_FIRST_S", 0.01)
    return closed


def close_one_entry_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make recoveries answer as if the ledger had been closed before its last entry."""
    recover = LedgerClient.recover_ledger

    async def recovered(client: LedgerClient, ledger_id: int) -> LedgerInfo:
        info = await recover(client, ledger_id)
        assert info.last_entry_id is not None
        return replace(info, last_entry_id=EntryId(info.last_entry_id - 1))

    monkeypatch.setattr(LedgerClient, "recover_ledger", recovered)


async def take_over_state(setting: LogSetting, state: list[bytes], epoch: int) -> StateLog:
    return await StateLog.take_over(
        setting.services(),
        KEY,
        epoch,
        SMALL,
        load=state.append,
        snapshot=lambda: list(state),
        on_failed=lambda: setting.failed.append(epoch),
    )


async def test_topic_rolls_after_unknown_close(setting: LogSetting, unknown: list[int]) -> None:
    log = await setting.take_over(1, SMALL)
    wanted = [b"%03d" % number * 20 for number in range(30)]
    for value in wanted:
        await append(log, batch(value))
    segments = log._ledger_list.record.segments
    assert len(segments) > 2
    assert [segment.ledger_id for segment in segments[:-1]] == unknown[: len(segments) - 1]
    assert [value for _, value in await values(log)] == wanted


async def test_state_rolls_after_unknown_close(setting: LogSetting, unknown: list[int]) -> None:
    state: list[bytes] = []
    log = await take_over_state(setting, state, 1)
    for number in range(30):
        answer = log.append(b"%050d" % number)
        state[:] = [b"%050d" % number]
        await answer
    await log.aclose()
    assert len(unknown) > 2
    assert setting.failed == []
    loaded: list[bytes] = []
    await (await take_over_state(setting, loaded, 2)).aclose()
    assert loaded[-1] == b"%050d" % 29


async def test_ended_writers_are_not_kept(setting: LogSetting) -> None:
    """A log that lives for months drops a prepared ledger at each change of its replication."""
    log = await setting.take_over(1, SMALL)
    ledgers = log._ledger_list
    for _ in range(3):
        ledgers.end_later(await ledgers.create_writer(SMALL.quorum), is_listed=False)
    assert len(ledgers._ending) == 3
    await until(lambda: not ledgers._ending)


@pytest.mark.usefixtures("unknown")
async def test_ledger_closed_elsewhere_ends_topic(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1, SMALL)
    close_one_entry_early(monkeypatch)
    with pytest.raises(TopicError) as failure:
        for _ in range(30):
            await append(log, batch(b"x" * 60))
    assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setting.failed == [1]


@pytest.mark.usefixtures("unknown")
async def test_ledger_closed_elsewhere_ends_state(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await take_over_state(setting, [], 1)
    close_one_entry_early(monkeypatch)
    with pytest.raises(TopicError) as failure:
        for number in range(30):
            await log.append(b"%050d" % number)
    assert failure.value.code is ErrorCode.NOT_COORDINATOR
    assert setting.failed == [1]
    await log.aclose()


async def test_state_appends_wait_for_snapshot(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await take_over_state(setting, [], 1)
    for number in range(12):
        await log.append(b"%050d" % number)
    await until(lambda: log._roller._next is not None)
    old, writes = log._roller.ledger, asyncio.Event()
    fill = log._roller._fill
    assert fill is not None

    async def slow(writer: LedgerWriter) -> None:
        await writes.wait()
        await fill(writer)

    monkeypatch.setattr(log._roller, "_fill", slow)
    answers = [log.append(b"%050d" % number) for number in range(20, 25)]
    await until(lambda: len(log._ledger_list.record.segments) == 2)
    await asyncio.sleep(0.01)
    assert [answer.done() for answer in answers] == [False] * 5
    assert log._roller.ledger is None
    writes.set()
    await asyncio.gather(*answers)
    assert log._roller.ledger is not old
    await log.aclose()
