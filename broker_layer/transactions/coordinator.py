"""Coordinator of the transactional ids in the state partitions that this broker leads.

Leaves the decisions to `machine`, storing to `state_partition`, sending markers to
`marker_sender`, and Kafka's messages to `handlers`.

Invariants: decisions about an id are made only while this broker leads its partition and has loaded
it. The result of a call is durable.

Source: KIP-98, KIP-360, KIP-447, KIP-890 (verification), KIP-664 (describe and list).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.java_hash import partition_of_key
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import OpenDurableLog
from broker_layer.transactions.config import TransactionConfig
from broker_layer.transactions.machine import ProducerIdNeeded, Store, TransactionMachine
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.ports import ProducerIds
from broker_layer.transactions.state_partition import StatePartition
from broker_layer.transactions.values import (
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError

EXPIRY_STEP: Final = 1_000
"""Number of ids that are checked for expiry in one iteration of the event loop."""


class TransactionCoordinator:
    """The transactional ids that one broker coordinates. Serves between `start` and `aclose`."""

    def __init__(
        self,
        sender: MarkerSender,
        producer_ids: ProducerIds,
        partition_count: Callable[[], int],
        config: TransactionConfig,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self._sender = sender
        self._producer_ids = producer_ids
        self._partition_count = partition_count
        self._wall_clock_ms = wall_clock_ms
        self._partitions: dict[int, StatePartition] = {}
        self._tasks = BackgroundTasks()
        self._is_active = False

    def start(self) -> None:
        """Begin to serve, and to check for timeouts."""
        self._is_active = True
        self._tasks.start(self._watch_timeouts())
        self._tasks.start(self._watch_idle_ids())

    async def aclose(self) -> None:
        """Resign all partitions."""
        self._is_active = False
        await self._tasks.aclose()
        for partition in list(self._partitions):
            await self.resign(partition)

    def now_ms(self) -> int:
        """Return the wall clock's time."""
        return self._wall_clock_ms()

    # Loading and resigning partitions

    async def load(self, partition: int, epoch: int, open_log: OpenDurableLog) -> None:
        """Take a state partition over and serve it. Raises TopicError if that fails."""
        assert partition not in self._partitions, "a partition is resigned before it is led again"
        state = StatePartition(partition, self._sender, self._wall_clock_ms)
        self._partitions[partition] = state
        try:
            await state.open(open_log)
        except BaseException:
            if self._partitions.get(partition) is state:
                del self._partitions[partition]
            raise

    async def resign(self, partition: int) -> None:
        """Stop serving a state partition; do nothing for one that is not served."""
        state = self._partitions.pop(partition, None)
        if state is not None:
            await state.aclose()

    # Requests of producers

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, claim: ProducerIdentity | None
    ) -> ProducerIdentity:
        """Return the identity of a new incarnation; all earlier ones are fenced.

        Raises TopicError; CONCURRENT_TRANSACTIONS while an earlier transaction is being ended.
        """
        if transactional_id is None:
            return ProducerIdentity(await self._fresh_producer_id(), 0)
        self._check_id(transactional_id)
        if not 0 < timeout_ms <= self.config.timeout_ms_max:
            text = f"the timeout must be 1 to {self.config.timeout_ms_max} ms, not {timeout_ms}"
            raise TopicError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        fresh_id: int | None = None
        while True:
            state = self._partition_of(transactional_id)
            machine = state.machines.get(transactional_id)
            if machine is None:
                self._check_room(state)
                machine = TransactionMachine()
            decision = machine.init_producer_id(
                claim, transactional_id, timeout_ms, self._wall_clock_ms(), fresh_id
            )
            if not isinstance(decision, ProducerIdNeeded):
                break
            fresh_id = await self._fresh_producer_id()
        await state.perform(machine, decision)
        assert isinstance(decision, Store), "a refusal was raised"
        return _identity_in(decision.transaction)

    async def add_partitions(self, claim: Claim, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the open transaction; begin one if none is open."""
        state, machine = self._machine_of(claim.transactional_id)
        now_ms = self._wall_clock_ms()
        await state.perform(machine, machine.add_partitions(claim, partitions, now_ms))

    async def end(self, claim: Claim, *, committed: bool) -> None:
        """Decide the end of the open transaction; return when it is durable. Markers follow."""
        state, machine = self._machine_of(claim.transactional_id)
        decision = machine.end(claim, committed=committed, now_ms=self._wall_clock_ms())
        await state.perform(machine, decision)

    def verify(
        self, claim: Claim, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether the claimed transaction is open. Raises TopicError
        if this broker does not know.
        """
        _, machine = self._machine_of(claim.transactional_id)
        return machine.verify(claim, partitions)

    # Requests of administrators

    def describe(self, transactional_id: str) -> tuple[Transaction, tuple[TopicPartition, ...]]:
        """Return the state of an id, and the partitions that its transaction still affects."""
        self._check_id(transactional_id)
        machine = self._partition_of(transactional_id).machines.get(transactional_id)
        if machine is None or machine.transaction is None:
            text = f"there is no transactional id {transactional_id!r}"
            raise TopicError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
        transaction = machine.transaction
        if transaction.state.is_prepared:
            return transaction, tuple(machine.unmarked)
        return transaction, transaction.partitions

    def list_all(self) -> list[Transaction]:
        """Return the states of all ids that this broker coordinates. Raises TopicError while a
        partition is loading.
        """
        self._check_active()
        transactions: list[Transaction] = []
        for state in self._partitions.values():
            try:
                state.check_serving()
            except TopicError:
                if state.is_loading:
                    raise
                continue  # another broker may lead it now, and lists it
            transactions += [
                machine.transaction
                for machine in state.machines.values()
                if machine.transaction is not None
            ]
        return transactions

    # Internals

    def _check_active(self) -> None:
        if not self._is_active:
            text = "the broker is starting or stopping: retry"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _check_id(self, transactional_id: str) -> None:
        self._check_active()
        if not transactional_id:
            raise TopicError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")

    def _check_room(self, state: StatePartition) -> None:
        if len(state.machines) >= self.config.ids_per_partition_max:
            count = len(state.machines)
            text = (
                f"state partition {state.number} is full: it has {count} transactional ids. Use "
                "fewer ids, or use them again; unused ones expire"
            )
            raise TopicError(ErrorCode.POLICY_VIOLATION, text)

    def _partition_of(self, transactional_id: str) -> StatePartition:
        self._check_active()
        count = self._partition_count()
        if count == 0:
            text = (
                "the state topic of transactions does not exist yet: find the coordinator, which "
                "creates it"
            )
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        number = partition_of_key(transactional_id, count)
        state = self._partitions.get(number)
        if state is None:
            text = f"this broker does not lead state partition {number}: find the coordinator again"
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        state.check_serving()
        return state

    def _machine_of(self, transactional_id: str) -> tuple[StatePartition, TransactionMachine]:
        self._check_id(transactional_id)
        state = self._partition_of(transactional_id)
        machine = state.machines.get(transactional_id)
        # If there is none, an empty machine refuses any claim.
        return state, machine or TransactionMachine()

    async def _fresh_producer_id(self) -> int:
        self._check_active()
        try:
            return await self._producer_ids.next()
        except MetadataError as error:
            # Clients retry on this code without looking for another coordinator.
            text = f"no producer id is available now, retry: {error}"
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text) from error

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(self.config.timeout_check_period_s)
            for state in list(self._partitions.values()):
                state.time_out(self._wall_clock_ms())

    async def _watch_idle_ids(self) -> None:
        while True:
            await asyncio.sleep(self.config.expiry_check_period_s)
            for state in list(self._partitions.values()):
                machines = list(state.machines.values())
                for start in range(0, len(machines), EXPIRY_STEP):
                    step = machines[start : start + EXPIRY_STEP]
                    state.expire(step, self.config.id_idle_ms_max)
                    await asyncio.sleep(0)


def _identity_in(transaction: Transaction) -> ProducerIdentity:
    """Return the identity of the new incarnation. Raises TopicError CONCURRENT_TRANSACTIONS, on
    which the producer retries, while the transaction of the previous one is being aborted.
    """
    if transaction.state is not TransactionState.EMPTY:
        text = "the transaction of the producer's previous instance is being aborted: retry"
        raise TopicError(ErrorCode.CONCURRENT_TRANSACTIONS, text)
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
