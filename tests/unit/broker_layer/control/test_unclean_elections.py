"""Tests of partitions whose ledgers no bookie can return.

They stay offline and report the reason until an operator requests an unclean leadership, which is
then tried until one has begun.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from broker_layer.control.assignment import unclean_since, with_unclean
from broker_layer.control.led_partitions import ReplicaReports
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ElectLeadersRequest, ElectLeadersResponse
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.topic_log import TopicLog
from ledger_client.errors import MetadataUnavailableError
from ledger_client.info import LedgerInfo
from metadata.topics.in_sync_reports import InSyncReporter
from metadata.topics.replica_numbers import ReplicaNumbers
from tests.support.broker_layer.asking import Admin, topic
from tests.support.broker_layer.control_setting import CONFIG, Broker, Setting
from tests.support.broker_layer.log_setting import append, batch, values
from tests.until import until

QUICK = replace(CONFIG, rebalance_interval_s=0.0)

ELECTION_TIMEOUT_MS = 60_000
"""Limit of an election; the machine may be busy."""


@pytest.fixture
async def setting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    monkeypatch.setattr("broker_layer.administration.leader_elections.REPORT_CHECK_PERIOD_S", 0.0)
    monkeypatch.setattr("broker_layer.control.assigned_partition.OFFLINE_AFTER_S", 0.0)
    setting = Setting()
    await setting.start(2)
    yield setting
    await setting.aclose()


async def asked(setting: Setting, broker: Broker) -> Admin:
    admin = await admin_of(broker)
    await admin.create(topic("a", 1, 1))
    return admin


async def lose(setting: Setting, log: TopicLog) -> None:
    """Lose every bookie of the log's newest ledger."""
    for bookie_id in log.replicas:
        bookie = setting.cluster.bookie(str(bookie_id))
        await bookie.unregister()
        await bookie.stop()


async def elect(admin: Admin) -> int:
    rows = [ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0])]
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=rows, timeout_ms=ELECTION_TIMEOUT_MS
    )
    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
    return answer.replica_election_results[0].partition_result[0].error_code


def reason(broker: Broker) -> str:
    status = broker.manager.status_of("a", 0)
    return "" if status is None else status.reason


async def offline(setting: Setting) -> Broker:
    """Return a broker that must lead a partition whose only ledger is open and lost."""
    first = await setting.broker(1, QUICK)
    await asked(setting, first)
    log = await first.log("a")
    await append(log, batch(b"lost"))
    await lose(setting, log)
    await setting.cluster.stores[setting.cluster.clients.index(first.client)].aclose()
    await setting.kill(first)
    broker = await setting.broker(2, QUICK)
    await until(lambda: "bookie-" in reason(broker))
    return broker


async def admin_of(broker: Broker) -> Admin:
    admin = Admin(broker)
    await admin.start()
    await admin.aclose()
    return admin


async def test_partition_with_lost_ledger_reports_reason(setting: Setting) -> None:
    broker = await offline(setting)
    admin = await admin_of(broker)

    assert not broker.leads("a")
    shown = (await admin.metadata("a")).topics[0].partitions[0]
    assert (shown.leader_id, shown.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert list(shown.isr_nodes) == []
    assert list(shown.offline_replicas) == list(shown.replica_nodes)


async def test_other_brokers_report_partition_offline(setting: Setting) -> None:
    broker = await offline(setting)
    other = await setting.broker(3, QUICK)
    reporter = InSyncReporter(broker.store, 2, broker.manager._rng, interval_s=0.01)
    reporter.start()
    numbers = ReplicaNumbers(broker.store, broker.manager._rng)
    reports = ReplicaReports(
        broker.manager,
        reporter,
        numbers,
        broker.health,
        replace(QUICK, report_interval_s=0.01),
    )
    reports.start()
    asking = Admin(other)
    await asking.start()

    async def shown() -> int:
        partition = (await asking.metadata("a")).topics[0].partitions[0]
        leader: int = partition.leader_id
        return leader

    while await shown() != -1:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await elect(asking)
    while await shown() != 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asking.aclose()
    await reports.aclose()
    await reporter.aclose()


async def test_unclean_election_continues_with_remaining_records(setting: Setting) -> None:
    broker = await offline(setting)
    admin = await admin_of(broker)

    assert await elect(admin) == ErrorCode.NONE

    log = await broker.log("a")
    await append(log, batch(b"after"))
    assert [value for _, value in await values(log)] == [b"after"]
    segments = await log._ledger_list.segments()
    lost = await broker.client.ledger_info(segments[0].ledger_id)
    assert lost.last_entry_id == -1
    assert lost.given_up[0].first_entry_id == 0


async def test_unclean_setting_does_not_abandon_complete_ledger(setting: Setting) -> None:
    broker = await offline(setting)
    admin = await admin_of(broker)
    assert await admin.step("a", "unclean.leader.election.enable", "true") == 0
    await until(lambda: "no replica of any earlier fragment" in reason(broker))
    assert not broker.leads("a")


class FailsTwice:
    """Unclean recovery that fails twice, as if the metadata service did not answer."""

    def __init__(self, recover: Callable[..., object]) -> None:
        self._recover = recover
        self.calls = 0

    async def __call__(self, ledger_id: int, *, gives_up_all: bool) -> LedgerInfo:
        self.calls += 1
        if self.calls <= 2:
            raise MetadataUnavailableError("away for a moment")
        info = await self._recover(ledger_id, gives_up_all=gives_up_all)  # type: ignore[misc]
        assert isinstance(info, LedgerInfo)
        return info


async def test_unclean_leadership_is_retried_until_it_begins(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await offline(setting)
    admin = await admin_of(broker)
    failing = FailsTwice(broker.client.recover_ledger_unclean)
    monkeypatch.setattr(broker.client, "recover_ledger_unclean", failing)

    assert await elect(admin) == ErrorCode.NONE
    since = broker.epochs("a")[0]

    log = await broker.log("a")
    assert failing.calls == 3
    assert log.leader_epoch > since
    await append(log, batch(b"after"))

    await lose(setting, log)
    log._appender.fail("as if its writer had ended")
    await until(lambda: "bookie-" in reason(broker))
    assert not broker.leads("a"), "what was asked for is done, and holds no more"


async def test_other_broker_completes_unclean_election(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await offline(setting)
    admin = await admin_of(first)

    async def fail(ledger_id: int, *, gives_up_all: bool) -> LedgerInfo:
        raise MetadataUnavailableError(f"{ledger_id} {gives_up_all}")

    monkeypatch.setattr(first.client, "recover_ledger_unclean", fail)
    assert await elect(admin) == ErrorCode.NONE
    await until(lambda: "True" in reason(first))

    second = await setting.broker(3, QUICK)
    await setting.kill(first)

    log = await second.log("a")
    assert await values(log) == []


async def test_lost_closed_ledgers_are_skipped(
    setting: Setting,
) -> None:
    broker = await setting.broker(1, QUICK)
    admin = await asked(setting, broker)
    log = await broker.log("a")
    await append(log, batch(b"one", b"two"))
    replicas = log.replicas
    await broker.manager._assigned["a"][0]._close()
    for bookie_id in replicas:
        await setting.cluster.bookie(str(bookie_id)).unregister()
        await setting.cluster.bookie(str(bookie_id)).stop()
    broker.manager._assigned["a"][0]._failed(log.leader_epoch, "it was closed in order")
    broker.manager._assigned["a"][0]._kick()
    await until(lambda: "cannot be read now" in reason(broker))

    assert await elect(admin) == ErrorCode.NONE

    log = await broker.log("a")
    assert log.log_end_offset == 2
    await until(lambda: bool(log.replicas) and log.replicas != replicas)
    await append(log, batch(b"three"))
    assert await values(log, 2) == [(2, b"three")]
    log._appender.fail("as if its writer had ended")
    again = await broker.log("a")
    assert await values(again, 2) == [(2, b"three")]


def test_unclean_request_applies_from_its_epoch() -> None:
    stored = with_unclean({"x": "y"}, {3: 7})
    assert [unclean_since(stored, 3, epoch) for epoch in (6, 7, 9)] == [None, 7, 7]
    assert unclean_since(stored, 2, 9) is None
    assert unclean_since(with_unclean(stored, {3: 9, 1: 2}), 3, 9) == 9


async def test_offline_reason_is_logged_repeatedly(setting: Setting) -> None:
    broker = await offline(setting)
    first = broker.manager.status_of("a", 0)
    assert first is not None
    reasons: dict[str, None] = {}
    while broker.epochs("a")[0] < first.epoch + 2:
        reasons[reason(broker)] = None
        await asyncio.sleep(0.005)
    assert all("bookie-" in each for each in reasons), reasons
    last = broker.manager.status_of("a", 0)
    assert last is not None
    assert last.since_s == first.since_s
