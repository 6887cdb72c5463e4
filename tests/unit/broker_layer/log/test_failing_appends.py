"""An exception inside an append to a log of a broker, after the entry was written: the log ends, so
that no offset is given twice and nothing that a caller was told is lost appears later.
"""

import asyncio

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log import log_appender, state_log
from tests.support.broker_layer.log_setting import LogSetting, append, batch, values
from tests.unit.broker_layer.log.test_state_log import take_over


@pytest.fixture
async def reported() -> list[object]:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reported.append(what["exception"]))
    return reported


def fail_once(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
    works = getattr(module, name)

    def failing(*_: object) -> object:
        monkeypatch.setattr(module, name, works)
        raise MemoryError("injected")

    monkeypatch.setattr(module, name, failing)


async def test_no_offset_is_given_twice(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch, reported: list[object]
) -> None:
    log = await setting.take_over(1)
    assert (await append(log, batch(b"zero"))).base_offset == 0
    fail_once(monkeypatch, log_appender, "PendingBatch")
    with pytest.raises(TopicError, match="MemoryError: injected") as refused:
        append(log, batch(b"of unknown outcome"))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setting.failed == [1]
    with pytest.raises(TopicError, match="MemoryError: injected"):
        append(log, batch(b"later"))
    second = await setting.take_over(2)
    await append(second, batch(b"after"))
    found = await values(second)
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert [value for _, value in found if value != b"of unknown outcome"] == [b"zero", b"after"]
    assert [type(error) for error in reported] == [MemoryError]


async def test_a_batch_that_waited_for_a_ledger_fails_too(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch, reported: list[object]
) -> None:
    log = await setting.take_over(1)
    fail_once(monkeypatch, log_appender, "placed")
    async with asyncio.timeout(5):
        with pytest.raises(TopicError, match="MemoryError: injected"):
            await append(log, batch(b"waits for the first ledger"))
    assert setting.failed == [1]
    assert [type(error) for error in reported] == [MemoryError]


async def test_a_record_of_a_coordinator_is_written_at_most_once(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = await take_over(setting, 1)
    await keeper.put(b"1", b"kept")
    fail_once(monkeypatch, state_log, "_Pending")
    async with asyncio.timeout(5):
        with pytest.raises(TopicError, match="MemoryError: injected") as refused:
            await keeper.put(b"1", b"of unknown outcome")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert keeper.failures == 1
