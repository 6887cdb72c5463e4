"""A coordinator answers only durable decisions, and decides only for partitions that it leads."""

import asyncio
from random import Random

import pytest

from broker_layer.coordinator_partitions import partition_of_key
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.values import (
    Claim,
    Marker,
    ProducerIdentity,
    TopicPartition,
    TransactionConfig,
    TransactionState,
    decode_transaction,
)
from metadata.errors import StoreUnavailableError
from tests.support.broker_layer.marker_world import OWN_ID, MarkerWorld
from tests.support.broker_layer.stored_state import StoredState
from tests.until import until

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
COUNT = 4
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


class Setting:
    """One coordinating broker, the partitions of its markers, and the state partition of id `t`."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.world = MarkerWorld()
        self.world.leaders = {A0: 2, B0: OWN_ID}
        self.count = COUNT
        self.next_id = 99
        self.has_ids = True
        self.ahead_ms = 0
        self.number = partition_of_key("t", COUNT)
        self.state = StoredState(Random(1), 0.01)
        self.coordinator = TransactionCoordinator(
            self.world.sender,
            self,
            lambda: self.count,
            config or TransactionConfig(),
            lambda: NOW_MS + self.ahead_ms + int(asyncio.get_running_loop().time() * 1000),
        )

    async def next(self) -> int:
        await asyncio.sleep(0)
        if not self.has_ids:
            raise StoreUnavailableError("here", "down")
        self.next_id += 1
        return self.next_id

    async def lead(self) -> None:
        self.coordinator.start()
        await self.load()

    async def load(self) -> None:
        opener = self.state.opener()
        await self.coordinator.load(self.number, opener)

    async def init(self, claim: ProducerIdentity | None = None) -> ProducerIdentity:
        return await self.coordinator.init_producer_id("t", TIMEOUT_MS, claim)

    async def open_transaction(self) -> Claim:
        claim = Claim("t", *await self.init())
        await self.coordinator.add_partitions(claim, [A0, B0])
        return claim

    def stored_states(self) -> list[TransactionState]:
        return [decode_transaction(record).state for record in self.state.records]

    def title(self) -> str:
        return self.coordinator.describe("t")[0].state.title

    async def aclose(self) -> None:
        await self.coordinator.aclose()
        await self.world.sender.aclose()


async def code_of(call: object) -> ErrorCode:
    assert asyncio.iscoroutine(call)
    with pytest.raises(TopicError) as caught:
        await call
    return caught.value.code


async def test_a_transaction_from_its_first_partition_to_its_last_marker() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    assert claim == Claim("t", 100, 0)
    assert setting.coordinator.verify(claim, [A0]) == {A0: ErrorCode.NONE}
    await setting.coordinator.end(claim, committed=True)
    assert setting.title() == "PrepareCommit"
    await asyncio.sleep(1)
    assert setting.title() == "CompleteCommit"
    marker = Marker(100, 0, committed=True, coordinator_epoch=1)
    assert sorted(setting.world.written) == [(1, B0, marker), (2, A0, marker)]
    assert setting.stored_states() == [
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]
    await setting.coordinator.end(claim, committed=True)
    assert len(setting.state.records) == 4
    await setting.aclose()


async def test_a_coordinator_that_was_replaced_answers_nothing_from_memory() -> None:
    first, second = Setting(), Setting()
    second.state = first.state
    await first.lead()
    claim = await first.open_transaction()
    await first.coordinator.end(claim, committed=True)
    await until(lambda: first.title() == "CompleteCommit")
    assert first.state.holder is not None
    first.state.holder._on_failed = lambda: None  # the news is under way
    await second.lead()
    await second.coordinator.add_partitions(claim, [A0])  # its next transaction
    moved = ErrorCode.NOT_COORDINATOR
    assert await code_of(first.coordinator.end(claim, committed=True)) is moved
    assert await code_of(first.coordinator.end(claim, committed=False)) is moved
    assert await code_of(first.init(ProducerIdentity(claim.producer_id, 7))) is moved
    await first.aclose()
    await second.aclose()


async def test_no_marker_is_sent_before_its_decision_is_durable() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    log = setting.state.holder
    assert log is not None
    log.is_held_up = True
    ending = asyncio.ensure_future(setting.coordinator.end(claim, committed=True))
    await asyncio.sleep(10)
    assert not ending.done()
    assert not setting.world.written
    assert setting.title() == "Ongoing"
    assert await code_of(setting.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    log.release_all()
    await ending
    await asyncio.sleep(1)
    assert len(setting.world.written) == 2
    await setting.aclose()


async def test_a_cancelled_caller_does_not_stop_a_decision() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    ending = asyncio.ensure_future(setting.coordinator.end(claim, committed=False))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(1)
    assert setting.title() == "CompleteAbort"
    await setting.aclose()


async def test_a_new_incarnation_first_aborts_the_open_transaction() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    assert await code_of(setting.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    await asyncio.sleep(1)
    marker = Marker(100, 1, committed=False, coordinator_epoch=1)
    assert sorted(setting.world.written) == [(1, B0, marker), (2, A0, marker)]
    assert await setting.init() == (100, 2)
    ending = setting.coordinator.end(claim, committed=True)
    assert await code_of(ending) is ErrorCode.PRODUCER_FENCED
    await setting.aclose()


async def test_the_next_coordinator_sends_the_remaining_markers() -> None:
    setting = Setting()
    setting.world.codes = {A0: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000}
    await setting.lead()
    claim = await setting.open_transaction()
    await setting.coordinator.end(claim, committed=True)
    await asyncio.sleep(5)
    assert setting.coordinator.describe("t")[1] == (A0,)
    await setting.coordinator.resign(setting.number)
    setting.world.written.clear()
    await asyncio.sleep(5)
    assert not setting.world.written
    setting.world.codes = {}
    await setting.load()
    await asyncio.sleep(1)
    marker = Marker(100, 0, committed=True, coordinator_epoch=2)
    assert sorted(setting.world.written) == [(1, B0, marker), (2, A0, marker)]
    assert setting.title() == "CompleteCommit"
    await setting.aclose()


async def test_a_decision_whose_append_failed_is_not_reported() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    log = setting.state.holder
    assert log is not None
    log.is_held_up = True
    ending = asyncio.ensure_future(setting.coordinator.end(claim, committed=True))
    await asyncio.sleep(0)
    log.fence()
    assert await code_of(asyncio.wait_for(ending, 10)) is ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(5)
    assert await code_of(setting.init()) is ErrorCode.NOT_COORDINATOR
    assert not setting.world.written
    await setting.aclose()


async def begun_as_the_coordinator_dies(seed: int) -> tuple[Setting, Claim, bool]:
    """Return the next coordinator, and whether it knows the transaction that was about to begin."""
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    await setting.coordinator.end(claim, committed=True)
    await asyncio.sleep(1)
    log = setting.state.holder
    assert log is not None
    log.is_held_up = True
    setting.state.rng = Random(seed)
    adding = asyncio.ensure_future(setting.coordinator.add_partitions(claim, [A0]))
    await asyncio.sleep(0)
    log.fence()
    assert await code_of(asyncio.wait_for(adding, 10)) is ErrorCode.NOT_COORDINATOR
    await setting.coordinator.resign(setting.number)
    await setting.load()
    return setting, claim, setting.title() == TransactionState.ONGOING.title


@pytest.mark.parametrize("seed", range(6))
async def test_a_beginning_is_repeated_to_the_next_coordinator(seed: int) -> None:
    setting, claim, _ = await begun_as_the_coordinator_dies(seed)
    await setting.coordinator.add_partitions(claim, [A0])
    assert setting.coordinator.verify(claim, [A0]) == {A0: ErrorCode.NONE}
    await setting.coordinator.end(claim, committed=True)
    await asyncio.sleep(1)
    assert setting.title() == "CompleteCommit"
    await setting.aclose()


async def test_an_end_without_its_lost_beginning_is_refused_as_in_kafka() -> None:
    """As in librdkafka: it aborts without waiting for the answer that partitions were added."""
    known = {}
    for seed in range(6):
        setting, claim, is_begun = await begun_as_the_coordinator_dies(seed)
        known[is_begun] = seed
        if is_begun:
            await setting.coordinator.end(claim, committed=False)
        else:  # the last known end was a commit: an abort would contradict it
            refused = setting.coordinator.end(claim, committed=False)
            assert await code_of(refused) is ErrorCode.INVALID_TXN_STATE
        await asyncio.sleep(1)
        assert await setting.init() == (100, 1)
        await setting.aclose()
    assert sorted(known) == [False, True]


async def test_only_the_coordinator_of_an_id_answers_and_only_once_it_has_loaded() -> None:
    setting = Setting()
    coordinator = setting.coordinator
    assert await code_of(setting.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.start()
    assert await code_of(setting.init()) is ErrorCode.NOT_COORDINATOR
    loading = asyncio.ensure_future(setting.load())
    await asyncio.sleep(0)
    claim = Claim("t", 1, 0)
    for call in (
        setting.init(),
        coordinator.add_partitions(claim, [A0]),
        coordinator.end(claim, committed=True),
    ):
        assert await code_of(call) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(TopicError) as caught:
        coordinator.list_all()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    assert await setting.init() == (100, 0)
    setting.count = 0
    assert await code_of(setting.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    setting.count = COUNT
    await coordinator.resign(setting.number)
    assert await code_of(setting.init()) is ErrorCode.NOT_COORDINATOR
    await coordinator.resign(setting.number)
    await setting.aclose()
    assert await code_of(setting.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_that_is_resigned_while_it_loads_is_not_led() -> None:
    setting = Setting()
    setting.coordinator.start()
    loading = asyncio.ensure_future(setting.load())
    await asyncio.sleep(0)
    await setting.coordinator.resign(setting.number)
    assert await code_of(asyncio.wait_for(loading, 10)) is ErrorCode.NOT_COORDINATOR
    assert await code_of(setting.init()) is ErrorCode.NOT_COORDINATOR
    await setting.load()
    assert await setting.init() == (100, 0)
    await setting.aclose()


async def test_a_damaged_partition_is_not_led() -> None:
    setting = Setting()
    setting.coordinator.start()
    setting.state.records = [b"damage"]
    assert await code_of(setting.load()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await code_of(setting.init()) is ErrorCode.NOT_COORDINATOR
    await setting.aclose()


async def test_wrong_requests_are_refused() -> None:
    setting = Setting(TransactionConfig(ids_per_partition_max=0))
    await setting.lead()
    coordinator = setting.coordinator
    for timeout_ms in (0, -1, 15 * 60 * 1000 + 1):
        call = coordinator.init_producer_id("t", timeout_ms, None)
        assert await code_of(call) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await code_of(coordinator.init_producer_id("", 1, None)) is ErrorCode.INVALID_REQUEST
    unnamed = Claim("", 1, 0)
    assert await code_of(coordinator.add_partitions(unnamed, [A0])) is ErrorCode.INVALID_REQUEST
    assert await code_of(coordinator.end(unnamed, committed=True)) is ErrorCode.INVALID_REQUEST
    unknown = coordinator.end(Claim("t", 1, 0), committed=True)
    assert await code_of(unknown) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await code_of(setting.init()) is ErrorCode.POLICY_VIOLATION
    await setting.aclose()


async def test_without_a_transactional_id_only_a_producer_id_is_assigned() -> None:
    setting = Setting()
    setting.coordinator.start()
    assert await setting.coordinator.init_producer_id(None, 0, None) == (100, 0)
    assert await setting.coordinator.init_producer_id(None, 0, None) == (101, 0)
    setting.has_ids = False
    call = setting.coordinator.init_producer_id(None, 0, None)
    assert await code_of(call) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await setting.aclose()


async def test_one_of_two_concurrent_first_incarnations_retries() -> None:
    setting = Setting()
    await setting.lead()
    first, second = asyncio.ensure_future(setting.init()), asyncio.ensure_future(setting.init())
    assert await first == (100, 0)
    assert await code_of(asyncio.wait_for(second, 10)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await setting.init() == (100, 1)
    await setting.aclose()


async def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
    assert setting.title() == "Ongoing"
    await asyncio.sleep(5)
    assert setting.title() == "CompleteAbort"
    marker = Marker(100, 1, committed=False, coordinator_epoch=1)
    assert sorted(setting.world.written) == [(1, B0, marker), (2, A0, marker)]
    ending = setting.coordinator.end(claim, committed=True)
    assert await code_of(ending) is ErrorCode.PRODUCER_FENCED
    await setting.aclose()


async def test_a_timeout_counts_from_the_transactions_start_also_after_a_move() -> None:
    setting = Setting()
    await setting.lead()
    await setting.open_transaction()
    await setting.coordinator.resign(setting.number)
    await asyncio.sleep(TIMEOUT_MS / 1000)
    await setting.load()
    await asyncio.sleep(3)
    assert setting.title() == "CompleteAbort"
    await setting.aclose()


async def test_a_clock_that_was_ahead_delays_no_timeout_after_a_move() -> None:
    setting = Setting()
    await setting.lead()
    setting.ahead_ms = 7_200_000
    claim = await setting.open_transaction()
    await setting.coordinator.resign(setting.number)
    setting.ahead_ms = 0
    await setting.load()
    await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
    assert setting.title() == "Ongoing"
    await asyncio.sleep(5)
    assert setting.title() == "CompleteAbort"
    ending = setting.coordinator.end(claim, committed=True)
    assert await code_of(ending) is ErrorCode.PRODUCER_FENCED
    await setting.aclose()


async def test_an_unused_id_is_removed_durably() -> None:
    setting = Setting(TransactionConfig(id_idle_ms_max=10_000_000))
    await setting.lead()
    await setting.init()
    await asyncio.sleep(7300)
    assert setting.title() == "Empty"
    await asyncio.sleep(3600)
    for _ in range(2):
        with pytest.raises(TopicError) as caught:
            setting.coordinator.describe("t")
        assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        await setting.coordinator.resign(setting.number)
        await setting.load()
    assert await setting.init() == (101, 0)
    await setting.aclose()


async def test_decisions_without_room_in_the_log_are_refused_or_retried() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    log = setting.state.holder
    assert log is not None
    log.is_full = True
    ending = setting.coordinator.end(claim, committed=True)
    assert await code_of(ending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.is_full = False
    await setting.coordinator.end(claim, committed=True)
    log.is_full = True
    await asyncio.sleep(10)
    assert setting.title() == "PrepareCommit"
    assert setting.coordinator.describe("t")[1] == ()
    log.is_full = False
    await asyncio.sleep(3)
    assert setting.title() == "CompleteCommit"
    assert len(setting.world.written) == 2
    await setting.aclose()


async def test_nothing_is_decided_or_shown_while_another_broker_may_lead() -> None:
    setting = Setting()
    await setting.lead()
    claim = await setting.open_transaction()
    log = setting.state.holder
    assert log is not None
    log.lead_refusal = TopicError(ErrorCode.NOT_COORDINATOR, "the session has lapsed")
    ending = setting.coordinator.end(claim, committed=True)
    assert await code_of(ending) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(TopicError) as caught:
        setting.coordinator.verify(claim, [A0])
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert setting.coordinator.list_all() == []
    log.lead_refusal = None
    assert [transaction.transactional_id for transaction in setting.coordinator.list_all()] == ["t"]
    assert setting.coordinator.verify(claim, [A0]) == {A0: ErrorCode.NONE}
    await setting.aclose()
