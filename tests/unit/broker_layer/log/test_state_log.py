"""Tests of a coordinator's state across leaders and ledgers."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest

from bookie.wire.messages import Status
from broker_layer import handlers as turns
from broker_layer.errors import TopicError
from broker_layer.handlers import SLICE_ELEMENTS
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import WAITING_BYTES_MAX, StateLog
from broker_layer.log.topic_configs import LogConfig
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import StoreUnavailableError
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition_store import PartitionStore
from tests.support.broker_layer.log_setting import CONFIG, KEY, LogSetting, small
from tests.support.loop_passes import counting_passes
from tests.until import until


@dataclass
class Keeper:
    """Coordinator of one map, which contains each record as soon as it is appended."""

    state: dict[bytes, bytes] = field(default_factory=dict)
    failures: int = 0
    log: StateLog | None = None

    def load(self, record: bytes) -> None:
        key, value = record.split(b"=")
        self.state[key] = value

    def snapshot(self) -> Iterable[bytes]:
        return [key + b"=" + value for key, value in self.state.items()]

    def fail(self) -> None:
        self.failures += 1

    def put(self, key: bytes, value: bytes) -> asyncio.Future[None]:
        assert self.log is not None
        answer = self.log.append(key + b"=" + value)
        self.state[key] = value
        return answer


async def take_over(setting: LogSetting, epoch: int, config: LogConfig = CONFIG) -> Keeper:
    keeper = Keeper()
    keeper.log = await StateLog.take_over(
        setting.services(),
        KEY,
        epoch,
        config,
        load=keeper.load,
        snapshot=keeper.snapshot,
        on_failed=keeper.fail,
    )
    return keeper


async def test_next_leader_loads_stored_records(setting: LogSetting) -> None:
    first = await take_over(setting, 1)
    await asyncio.gather(*[first.put(b"%d" % n, b"v%d" % n) for n in range(100)])
    await first.put(b"7", b"other")
    second = await take_over(setting, 2)
    assert second.state == first.state
    with pytest.raises(TopicError) as refusal:
        await first.put(b"8", b"stale")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert first.failures == 1
    third = await take_over(setting, 3)
    assert third.state == second.state
    for keeper in (second, third):
        assert keeper.log is not None
        await keeper.log.aclose()


async def test_bytes_of_records_that_wait_are_limited(setting: LogSetting) -> None:
    keeper = await take_over(setting, 1)
    await keeper.put(b"1", b"v")
    for bookie in setting.cluster.bookies:
        bookie.is_silent = True
    records: list[asyncio.Future[None]] = []
    with pytest.raises(TopicError, match="wait to be stored") as refusal:
        records.extend(keeper.put(b"%d" % n, b"x" * 1_000_000) for n in range(200))
    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(records) > WAITING_BYTES_MAX // 1_000_100
    for bookie in setting.cluster.bookies:
        bookie.is_silent = False
    await asyncio.wait(records)
    assert keeper.log is not None
    assert keeper.log._waiting_bytes == 0
    await keeper.log.aclose()


@pytest.mark.parametrize("segment_bytes", [1 << 20, 4_000])
async def test_other_work_runs_while_many_records_are_loaded(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    count = 5 * SLICE_ELEMENTS
    first = await take_over(setting, 1, small(segment_bytes=segment_bytes))
    await first.put(b"first", b"value")  # the others are changes after a snapshot
    await asyncio.gather(*[first.put(b"%d" % n, b"value") for n in range(count)])
    assert first.log is not None
    for _ in range(5):  # or parts of the snapshot of the next ledger
        await first.put(b"last", b"value")
    await first.log.aclose()
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    loaded, load = Counter[int](), Keeper.load
    async with counting_passes() as passes:

        def counted(keeper: Keeper, record: bytes) -> None:
            loaded[passes.now] += 1
            load(keeper, record)

        monkeypatch.setattr(Keeper, "load", counted)
        second = await take_over(setting, 2)
    assert second.state == first.state
    assert loaded.total() > count
    assert max(loaded.values()) <= SLICE_ELEMENTS
    assert second.log is not None
    await second.log.aclose()


async def test_roll_keeps_only_newest_ledger(setting: LogSetting) -> None:
    keeper = await take_over(setting, 1, small(segment_bytes=500))
    for number in range(200):
        await keeper.put(b"%d" % (number % 17), b"value %d" % number)
    assert keeper.log is not None
    await keeper.log.aclose()
    record, _ = await PartitionStore(MemoryMetadataStore(setting.cluster.server), Random(1)).get(
        KEY
    )
    assert len(record.segments) <= 2
    after = await take_over(setting, 2)
    assert after.state == keeper.state


async def test_incomplete_snapshot_is_ignored(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await take_over(setting, 1)
    for number in range(20):
        await first.put(b"%d" % number, b"kept")
    second = await take_over(setting, 2)
    bookies = setting.cluster.bookies

    def cut_off() -> Iterable[bytes]:
        for bookie in bookies:
            bookie.refuse_adds = Status.FENCED
        return []

    assert second.log is not None
    monkeypatch.setattr(second.log, "_snapshot", cut_off)
    with pytest.raises(TopicError):
        await second.put(b"1", b"lost")
    for bookie in bookies:
        bookie.refuse_adds = None
    third = await take_over(setting, 3)
    assert third.state == first.state
    await third.put(b"1", b"new")
    fourth = await take_over(setting, 4)
    assert fourth.state == third.state


@pytest.mark.parametrize("entries", range(8))
async def test_begun_ledger_that_is_cut_off_never_takes_state_back(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """The bookies refuse adds after some entries of the next ledger's beginning."""
    first = await take_over(setting, 1, small(segment_bytes=60))
    await first.put(b"a", b"1")
    await first.put(b"b", b"1")
    assert first.log is not None
    begin, append_many = first.log._roller._fill, LedgerWriter.append_many
    assert begin is not None
    waiting: list[asyncio.Future[None]] = []

    async def cut_off(writer: LedgerWriter, parts: Iterable[bytes]) -> object:
        parts = list(parts)
        stored = await append_many(writer, parts[:entries])
        if entries < len(parts):
            for bookie in setting.cluster.bookies:
                bookie.refuse_adds = Status.FENCED
            return await append_many(writer, parts[entries:])
        return stored

    async def begin_after_appends(writer: LedgerWriter) -> None:
        """Begin the ledger while changes wait, some of which undo others."""
        waiting.extend(first.put(b"a", b"%d" % number) for number in (3, 4, 5))
        monkeypatch.setattr(LedgerWriter, "append_many", cut_off)
        await begin(writer)

    monkeypatch.setattr(first.log._roller, "_fill", begin_after_appends)
    acknowledged = 0
    for number in range(2, 20):
        answer = first.put(b"b", b"%d" % number)
        await asyncio.wait([answer])
        if answer.exception() is not None or waiting:
            break
        acknowledged = number
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    monkeypatch.undo()
    for bookie in setting.cluster.bookies:
        bookie.refuse_adds = None
    second = await take_over(setting, 2)
    assert int(second.state[b"b"]) >= acknowledged
    stored = [outcome for outcome in outcomes if outcome is None]
    assert second.state[b"a"] == (b"5" if stored else b"1")
    assert len(stored) in (0, 3)


@pytest.mark.parametrize("seed", range(6))
async def test_leader_changes_lose_no_stored_record(setting: LogSetting, seed: int) -> None:
    rng = Random(seed)
    stored: dict[bytes, int] = {}
    config = small(segment_bytes=400)
    keeper = await take_over(setting, 1, config)
    number = 0
    for epoch in range(2, 12):
        answers = []
        for _ in range(rng.randrange(1, 40)):
            number += 1
            key = b"%d" % rng.randrange(9)
            answers.append((key, number, keeper.put(key, b"%d" % number)))
            if rng.random() < 0.2:
                await asyncio.sleep(0)
        if rng.random() < 0.5:
            await answers[-1][2]
        after = await take_over(setting, epoch, config)
        outcomes = await asyncio.gather(*[answer[2] for answer in answers], return_exceptions=True)
        for (key, value, _), outcome in zip(answers, outcomes, strict=True):
            if outcome is None:
                stored[key] = value
        for key, value in stored.items():
            assert int(after.state[key]) >= value
        keeper = after


async def test_a_replaced_leader_learns_it_when_it_asks(setting: LogSetting) -> None:
    first = await take_over(setting, 1)
    await first.put(b"a", b"1")
    assert first.log is not None
    await first.log.confirm_lead()
    second = await take_over(setting, 2)
    assert second.log is not None
    await second.log.confirm_lead()
    with pytest.raises(TopicError) as refusal:
        await first.log.confirm_lead()
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert first.failures == 1, "its partition is taken over again"


async def test_questions_that_come_together_share_one_read(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = await take_over(setting, 1)
    assert keeper.log is not None
    ledgers = keeper.log._ledger_list
    ask, may_answer = ledgers.is_held, asyncio.Event()
    asked = 0

    async def slow() -> bool:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return await ask()

    monkeypatch.setattr(ledgers, "is_held", slow)
    first = asyncio.create_task(keeper.log.confirm_lead())
    await until(lambda: asked == 1)
    others = [asyncio.create_task(keeper.log.confirm_lead()) for _ in range(10)]
    await asyncio.sleep(0)
    may_answer.set()
    await asyncio.gather(first, *others)
    assert asked == 2, "a read that began before a question does not answer it"


async def test_a_leader_that_cannot_ask_asks_its_client_to_retry(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = await take_over(setting, 1)
    assert keeper.log is not None

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("here", "down")

    with monkeypatch.context() as patched:
        patched.setattr(keeper.log._ledger_list.services.partitions, "get", away)
        with pytest.raises(TopicError) as refusal:
            await keeper.log.confirm_lead()
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await keeper.log.confirm_lead()
    assert keeper.failures == 0
