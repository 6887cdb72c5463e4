"""Coordinator of the transactional ids in the state partitions that this broker leads.

Leaves the decisions to `machine`, sending markers to `marker_sender`, and Kafka's messages to
`handlers`.

Invariants: decisions about an id are made only while this broker leads its partition, has loaded
it, and its session cannot have lapsed. A decision is reported only after it is durable; an answer
for which nothing is stored leaves only after it is certain that no other broker had the partition
before; a code on which clients retry needs no certainty. Markers are sent only after their decision
is durable, with the epoch in which this broker leads the partition. After the log failed, no more
decisions are made.

Source: KIP-98, KIP-360, KIP-447, KIP-890 (verification), KIP-664 (describe and list).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker_layer.coordinator_partitions import TRANSACTION_STATE, LedPartition, LedPartitions
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import OpenDurableLog
from broker_layer.transactions.leaders import ProducerIds
from broker_layer.transactions.machine import (
    Decision,
    ProducerIdNeeded,
    RequestRefused,
    Store,
    TransactionMachine,
)
from broker_layer.transactions.marker_sender import MarkerJob, MarkerSender
from broker_layer.transactions.values import (
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionConfig,
    TransactionState,
    decode_transaction,
    encode_transaction,
)
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError
from quire.server.overriding import override

EXPIRY_STEP: Final = 1_000
"""Number of ids that are checked for expiry in one iteration of the event loop."""
_log = logging.getLogger(__name__)


class StatePartition(LedPartition):
    """The transactional ids of one partition of the state topic."""

    def __init__(self, number: int, sender: MarkerSender, wall_clock_ms: Callable[[], int]) -> None:
        super().__init__(TRANSACTION_STATE, number)
        self.machines: dict[str, TransactionMachine] = {}
        self.active: dict[str, TransactionMachine] = {}
        """The machines with a transaction that is open or being ended."""
        self._sender = sender
        self._wall_clock_ms = wall_clock_ms
        self._jobs: dict[str, MarkerJob] = {}

    async def load(self, open_log: OpenDurableLog) -> None:
        """Load the partition, and send the markers of decided transactions. Raises TopicError."""
        await self.open(open_log, self._load, self._snapshot)
        for machine in list(self.machines.values()):
            self._note_state(machine)

    @override
    def end(self) -> None:
        """Stop making decisions, and cancel the markers."""
        super().end()
        for job in self._jobs.values():
            job.cancel()
        self._jobs.clear()

    async def perform(self, machine: TransactionMachine, decision: Decision) -> None:
        """Store a decision; return when it is durable. Raises TopicError for a refusal, or if it
        cannot be stored.
        """
        if isinstance(decision, Store):
            await self._store(machine, decision.transaction)
            return
        code = decision.code if isinstance(decision, RequestRefused) else ErrorCode.NONE
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            await self.confirm_lead()
        if code is not ErrorCode.NONE:
            text = f"the transaction's state does not allow this request: {code.name}"
            raise TopicError(code, text)

    def perform_nowait(self, machine: TransactionMachine, decision: Decision) -> None:
        """Start storing a decision that no client requested; a failed one is retried later."""
        if isinstance(decision, Store):
            try:
                self._store(machine, decision.transaction)
            except TopicError as error:
                _log.warning(
                    "state partition %d did not store a decision and tries again: %s",
                    self.number,
                    error,
                )

    def time_out(self, now_ms: int) -> None:
        """Abort transactions that are open too long, and retry completions that were not stored."""
        for machine in list(self.active.values()):
            if self._log is None or self._has_ended:
                return
            self.perform_nowait(machine, machine.time_out(now_ms))
            self.perform_nowait(machine, machine.complete(now_ms))

    def expire(self, machines: Iterable[TransactionMachine], idle_ms_max: int) -> None:
        """Remove those of `machines` that were not used for `idle_ms_max`."""
        now_ms = self._wall_clock_ms()
        for machine in machines:
            if self._log is None or self._has_ended:
                return
            self.perform_nowait(machine, machine.expire(now_ms, idle_ms_max))

    # Storing

    def _store(
        self, machine: TransactionMachine, transaction: Transaction
    ) -> "asyncio.Future[None]":
        stored = self.log.append(encode_transaction(transaction))
        machine.storing(transaction)
        self.machines[transaction.transactional_id] = machine
        # The caller may stop waiting; the machine needs the result nevertheless.
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.add_done_callback(partial(self._note_stored, machine, result))
        return result

    def _note_stored(
        self,
        machine: TransactionMachine,
        result: "asyncio.Future[None]",
        stored: "asyncio.Future[None]",
    ) -> None:
        error = None if stored.cancelled() else stored.exception()
        if stored.cancelled() or error is not None:
            self.end()
            code = ErrorCode.NOT_COORDINATOR
            if not result.done():
                result.set_exception(TopicError(code, f"the decision was not stored: {error}"))
                result.exception()  # avoid a warning if no caller waits
            return
        machine.stored()
        if not self._has_ended:
            self._note_state(machine)
        if not result.done():
            result.set_result(None)

    def _note_state(self, machine: TransactionMachine) -> None:
        """Update the tables, and send markers, for a machine's durable state."""
        transaction = machine.transaction
        assert transaction is not None, "the state is durable"
        transactional_id = transaction.transactional_id
        if transaction.state.is_idle or transaction.state is TransactionState.DEAD:
            self.active.pop(transactional_id, None)
        else:
            self.active[transactional_id] = machine
        if transaction.state is TransactionState.DEAD:
            del self.machines[transactional_id]
        if transaction.state.is_prepared:
            self._send_markers(machine, transaction)

    # Markers

    def _send_markers(self, machine: TransactionMachine, transaction: Transaction) -> None:
        assert self._log is not None, "a durable state needs a log"
        if not transaction.partitions:
            self.perform_nowait(machine, machine.complete(self._wall_clock_ms()))
            return
        job = MarkerJob(
            transaction.transactional_id,
            transaction.marker(self._log.leader_epoch),
            partial(self._note_marker, machine),
        )
        self._jobs[transaction.transactional_id] = job
        self._sender.send(job, transaction.partitions)

    def _note_marker(self, machine: TransactionMachine, partition: TopicPartition) -> None:
        if self._has_ended:
            return
        machine.marker_stored(partition)
        if not machine.unmarked and machine.transaction is not None:
            self._jobs.pop(machine.transaction.transactional_id, None)
            self.perform_nowait(machine, machine.complete(self._wall_clock_ms()))

    # The log

    def _load(self, record: bytes) -> None:
        transaction = decode_transaction(record)
        if transaction.state is TransactionState.DEAD:
            self.machines.pop(transaction.transactional_id, None)
        else:
            loaded = transaction.loaded(self._wall_clock_ms())
            self.machines[transaction.transactional_id] = TransactionMachine(loaded)

    def _snapshot(self) -> Iterator[bytes]:
        newest = [machine.newest for machine in self.machines.values()]
        return (encode_transaction(state) for state in newest if state is not None)


@dataclass(eq=False, repr=False)
class TransactionCoordinator:
    """The transactional ids that one broker coordinates. Serves between `start` and `aclose`."""

    _sender: MarkerSender
    _producer_ids: ProducerIds
    _partition_count: Callable[[], int]
    config: TransactionConfig
    _wall_clock_ms: Callable[[], int]
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks, init=False)
    _is_active: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._led = LedPartitions[StatePartition](TRANSACTION_STATE, self._partition_count)

    def start(self) -> None:
        """Begin to serve, and to check for timeouts."""
        self._is_active = True
        self._tasks.start(self._watch_timeouts())
        self._tasks.start(self._watch_idle_ids())

    async def aclose(self) -> None:
        """Resign all partitions."""
        self._is_active = False
        await self._tasks.aclose()
        await self._led.aclose()

    def now_ms(self) -> int:
        """Return the wall clock's time."""
        return self._wall_clock_ms()

    # Loading and resigning partitions

    async def load(self, partition: int, open_log: OpenDurableLog) -> None:
        """Take a state partition over and serve it. Raises TopicError if that fails."""
        state = StatePartition(partition, self._sender, self._wall_clock_ms)
        await self._led.load(state, state.load(open_log))

    async def resign(self, partition: int) -> None:
        """Stop serving a state partition; do nothing for one that is not served."""
        await self._led.resign(partition)

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
        return [
            machine.transaction
            for state in self._led.served()
            for machine in state.machines.values()
            if machine.transaction is not None
        ]

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
        return self._led.of_key(transactional_id)

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
            for state in self._led.loaded():
                state.time_out(self._wall_clock_ms())

    async def _watch_idle_ids(self) -> None:
        while True:
            await asyncio.sleep(self.config.expiry_check_period_s)
            for state in self._led.loaded():
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
