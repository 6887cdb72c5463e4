"""Tests of a coordinator's log that is closed or deposed while it begins a ledger.

Also tests the limit of the memory of recent batches.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker_layer.errors import TopicError
from broker_layer.log.log_services import KEPT_COST_BYTES, LogServices, TailMemory
from broker_layer.log.pending_batches import RecentBatches
from broker_layer.log.state_log import StateLog
from broker_layer.log.topic_configs import LogConfig
from ledger_client import Quorum
from ledger_client.errors import RecoveryUndecidedError
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import VersionConflictError
from metadata.ids import LedgerId, Version
from metadata.paths import partition_path
from tests.support.broker_layer.log_setting import CONFIG, KEY, LogSetting
from tests.until import until


async def take_over(
    setting: LogSetting,
    epoch: int,
    config: LogConfig = CONFIG,
    *,
    services: LogServices | None = None,
) -> StateLog:
    return await StateLog.take_over(
        services or setting.services(),
        KEY,
        epoch,
        config,
        load=lambda _: None,
        snapshot=list,
        on_failed=lambda: setting.failed.append(epoch),
    )


async def test_close_during_ledger_begin_leaves_no_writer(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await take_over(setting, 1)
    client = log._ledger_list.services.client
    create = client.create_ledger
    is_creating, resume = asyncio.Event(), asyncio.Event()
    writers: list[LedgerWriter] = []

    async def slow(quorum: Quorum, *, metadata: Mapping[str, str | bytes]) -> LedgerWriter:
        is_creating.set()
        await resume.wait()
        writers.append(await create(quorum, metadata=metadata))
        return writers[0]

    monkeypatch.setattr(client, "create_ledger", slow)
    monkeypatch.setattr("broker_layer.log.state_log.DRAIN_S", 0.05)
    answer = log.append(b"a")
    await is_creating.wait()
    closing = asyncio.create_task(log.aclose())
    with pytest.raises(TopicError):
        await answer
    await closing
    resume.set()
    await until(lambda: bool(writers))
    while [info async for info in client.list_ledgers()]:  # noqa: ASYNC110 - each look is a call
        await asyncio.sleep(0)
    await log.aclose()
    after = await take_over(setting, 2)
    await after.append(b"b")
    await after.aclose()


async def test_ledger_that_may_be_listed_is_not_deleted(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await take_over(setting, 1)
    partitions = log._ledger_list.services.partitions
    store = partitions.compare_and_set

    async def overtaken(*arguments: object) -> None:
        """Apply the change, lose the answer, and let another leader change the list after it."""
        await store(*arguments)  # type: ignore[arg-type]
        raise VersionConflictError(partition_path(KEY), Version(0))

    monkeypatch.setattr(partitions, "compare_and_set", overtaken)
    with pytest.raises(TopicError):
        await log.append(b"a")
    await log.aclose()
    after = await take_over(setting, 2)
    await after.append(b"b")
    await after.aclose()


async def test_unclean_leadership_continues_without_lost_entries(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await take_over(setting, 1)
    await first.append(b"a")
    services = setting.services()
    recover = services.client.recover_ledger
    given_up: list[int] = []

    async def undecided(ledger_id: int) -> None:
        raise RecoveryUndecidedError("none answers", ledger_id=LedgerId(ledger_id), missing={})

    async def unclean(ledger_id: int, *, gives_up_all: bool) -> LedgerInfo:
        assert not gives_up_all
        given_up.append(ledger_id)
        return await recover(ledger_id)

    monkeypatch.setattr(services.client, "recover_ledger", undecided)
    monkeypatch.setattr(services.client, "recover_ledger_unclean", unclean)
    with pytest.raises(RecoveryUndecidedError):
        await take_over(setting, 2, services=services)
    asked = replace(CONFIG, unclean_recovery=True)
    after = await take_over(setting, 3, asked, services=services)
    assert len(given_up) == 1
    await after.aclose()


def test_kept_batches_count_with_overhead() -> None:
    memory = TailMemory(10_000)
    recent = RecentBatches(memory)
    for number in range(1_000):
        recent.keep(number, number + 1, b"x")
    assert recent.read(990, 1_000, 100) == [b"x"] * 10
    oldest = 1_000 - 10_000 // (1 + KEPT_COST_BYTES)
    assert recent.read(oldest - 1, 1_000, 1) is None
    assert recent.read(oldest, 1_000, 1) == [b"x"]


async def test_coordinator_continues_without_lost_ledger(
    setting: LogSetting,
) -> None:
    first = await take_over(setting, 1, replace(CONFIG, quorum=Quorum.in_sync(1, 1)))
    await first.append(b"a")
    await until(lambda: bool(first._roller.replicas))
    (lost,) = first._roller.replicas
    await first.aclose()
    await setting.cluster.bookie(str(lost)).unregister()
    await setting.cluster.bookie(str(lost)).stop()
    quick = replace(setting.services(), client=setting.cluster.client(call_timeout_s=0.5))
    with pytest.raises(TopicError, match="cannot be read now"):
        await take_over(setting, 2, services=quick)

    after = await take_over(setting, 3, replace(CONFIG, unclean_since=2), services=quick)
    await until(lambda: bool(after._roller.replicas))
    await after.aclose()

    again = await take_over(setting, 4, replace(CONFIG, unclean_since=2))
    assert not again._ledger_list.is_unclean_requested(again._roller.config)
    await again.aclose()
