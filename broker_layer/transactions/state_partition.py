"""One state partition of transactions, while this broker leads it: its machines and their shell.

Leaves the decisions to `machine`, sending markers to `marker_sender`, and the mapping of ids to
partitions to `coordinator`.

Invariants: a decision is reported only after it is durable. An answer for which nothing is stored
leaves only after it is certain that no other broker had the partition before; a code on which
clients retry needs no certainty. Nothing is decided or answered while the broker's session may have
lapsed. Markers are sent only after their decision is durable, with the epoch in which this broker
leads the partition. After the log failed, no more decisions are made.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import DurableLog, OpenDurableLog
from broker_layer.transactions.machine import Decision, RequestRefused, Store, TransactionMachine
from broker_layer.transactions.marker_job import MarkerJob
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.records import decode_transaction, encode_transaction
from broker_layer.transactions.values import TopicPartition, Transaction, TransactionState
from metadata.errors import MetadataFormatError

_log = logging.getLogger(__name__)


class StatePartition:
    """The transactional ids of one partition of the state topic."""

    def __init__(self, number: int, sender: MarkerSender, wall_clock_ms: Callable[[], int]) -> None:
        self.number = number
        self.machines: dict[str, TransactionMachine] = {}
        self.active: dict[str, TransactionMachine] = {}
        """The machines with a transaction that is open or being ended."""
        self._sender = sender
        self._wall_clock_ms = wall_clock_ms
        self._log: DurableLog | None = None
        self._has_ended = False
        self._jobs: dict[str, MarkerJob] = {}

    async def open(self, open_log: OpenDurableLog) -> None:
        """Load the partition, and send the markers of decided transactions. Raises TopicError."""
        try:
            log = await open_log(load=self._load, snapshot=self._snapshot, on_failed=self._fail)
        except MetadataFormatError as error:
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if self._has_ended:
            await log.aclose()
            text = (
                f"state partition {self.number} was given to another broker while it was loaded: "
                "find the coordinator again, and retry there"
            )
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        self._log = log
        for machine in list(self.machines.values()):
            self._note_state(machine)

    async def aclose(self) -> None:
        """Stop making decisions, cancel the markers, and close the log in order."""
        self._fail()
        log, self._log = self._log, None
        if log is not None:
            await log.aclose()

    @property
    def is_loading(self) -> bool:
        """Whether the records are still being read."""
        return self._log is None and not self._has_ended

    def check_serving(self) -> None:
        """Raise TopicError if this broker cannot make decisions for the partition now."""
        if self._has_ended:
            text = (
                f"this broker no longer leads state partition {self.number}: find the coordinator "
                "again, and retry there"
            )
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        if self._log is None:
            text = f"state partition {self.number} is being loaded: retry"
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        if self._log.lead_refusal is not None:
            raise self._log.lead_refusal

    async def perform(self, machine: TransactionMachine, decision: Decision) -> None:
        """Store a decision; return when it is durable. Raises TopicError for a refusal, or if it
        cannot be stored.
        """
        if isinstance(decision, Store):
            await self._store(machine, decision.transaction)
            return
        code = decision.code if isinstance(decision, RequestRefused) else ErrorCode.NONE
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            await self._confirm_lead()
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

    async def _confirm_lead(self) -> None:
        """Wait until it is certain that the state in memory was not old at this call. Raises
        TopicError (see `DurableLog.confirm_lead`).
        """
        self.check_serving()
        assert self._log is not None, "a serving partition has its log"
        await self._log.confirm_lead()
        self.check_serving()

    # Storing

    def _store(
        self, machine: TransactionMachine, transaction: Transaction
    ) -> "asyncio.Future[None]":
        self.check_serving()
        assert self._log is not None, "a serving partition has its log"
        stored = self._log.append(encode_transaction(transaction))
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
            self._fail()
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
        return (encode_transaction(each) for each in newest if each is not None)

    def _fail(self) -> None:
        self._has_ended = True
        for job in self._jobs.values():
            job.cancel()
        self._jobs.clear()
