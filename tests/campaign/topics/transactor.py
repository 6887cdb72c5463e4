"""Process that writes tokens: each to several partitions in one transaction, or not at all.

Leaves judging to `judge`, and reading other tokens to `transaction_reads`.

Invariants: what was read before a token, and its planned contents, are recorded before it begins,
and its outcome if and only if the client knew it. A token without a recorded outcome may be there
or not, but only completely.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.campaign.topics.payloads import Identity, payload_of
from tests.campaign.topics.transaction_reads import TransactionReads
from tests.campaign.topics.work import TOKENS, Pace, Worker

CALL_S: Final = 20.0
OUTCOME_S_MAX: Final = 120.0
TRANSACTION_TIMEOUT_MS: Final = 15_000
RECORDS_MAX: Final = 4
ABORTED_SHARE: Final = 0.25
LINGERING_SHARE: Final = 0.1
"""Share of tokens that stay open for a while, so that more faults hit them."""
LINGER_S_MAX: Final = 3.0


class TransactorRun:
    """One producer with the worker's transactional id, until it ends or fails."""

    def __init__(self, worker: Worker, reads: TransactionReads, life: int) -> None:
        self._worker = worker
        self._reads = reads
        options = worker.options
        self._writer = f"{options.name}.{options.run}.{life}"
        self._rng = options.rng
        self._sequences = [0] * options.partitions
        self._token = 0
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 1_000,
                "error_cb": lambda _error: None,
            }
        )

    def go(self, pace: Pace) -> None:
        """Write one token after the other until the stop. Raises KafkaException if it must end."""
        self._until_done("init", lambda: self._producer.init_transactions(CALL_S))
        while not self._worker.is_stopping:
            self._worker.alive()
            if pace.may_go(self._worker.options.partitions * RECORDS_MAX // 2):
                self._write_token()
            else:
                self._worker.pause(0.01)

    def _write_token(self) -> None:
        rng, token = self._rng, f"{self._writer}:{self._token}"
        self._token += 1
        count = len(self._sequences)
        chosen = sorted(rng.sample(range(count), rng.randint(min(2, count), count)))
        parts = {part: [self._sequences[part], rng.randint(1, RECORDS_MAX)] for part in chosen}
        self._worker.tell(
            "began",
            token=token,
            writer=self._writer,
            parts=parts,
            reader=self._reads.name,
            reads=self._reads.take(),
        )
        is_to_abort = rng.random() < ABORTED_SHARE
        try:
            self._producer.begin_transaction()
            for partition, (_first, records) in parts.items():
                for _ in range(records):
                    self._produce(partition)
            if rng.random() < LINGERING_SHARE:
                self._producer.flush(CALL_S)
                self._worker.pause(rng.uniform(0, LINGER_S_MAX))
            elif rng.random() < 0.5:
                self._producer.flush(CALL_S)
            if not is_to_abort:
                self._until_done("commit", lambda: self._producer.commit_transaction(CALL_S))
                self._worker.tell("committed", token=token)
                return
        except KafkaException as raised:
            error = _error_of(raised)
            self._worker.failed("transaction", error)
            if not error.txn_requires_abort():
                raise
        self._until_done("abort", lambda: self._producer.abort_transaction(CALL_S))
        self._worker.tell("aborted", token=token)

    def _produce(self, partition: int) -> None:
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        value = payload_of(Identity(self._writer, partition, sequence))
        while True:
            try:
                self._producer.produce(TOKENS, value, partition=partition)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _until_done(self, what: str, call: Callable[[], None]) -> None:
        """Call again while the client reports that a retry is right."""
        deadline = time.monotonic() + OUTCOME_S_MAX
        while True:
            self._worker.alive()
            try:
                call()
                return
            except KafkaException as raised:
                error = _error_of(raised)
                if not error.retriable() or time.monotonic() > deadline:
                    raise
                self._worker.failed(what, error)


def _error_of(raised: KafkaException) -> KafkaError:
    error = raised.args[0]
    assert isinstance(error, KafkaError), "the client says so"
    return error


def main() -> int:
    """Write tokens until SIGTERM."""
    worker = Worker("writes tokens in transactions")
    pace, reads, life = Pace(worker.options.records_per_s), TransactionReads(worker), 0
    while not worker.is_stopping:
        try:
            TransactorRun(worker, reads, life).go(pace)
        except KafkaException as raised:
            worker.failed("transactor", _error_of(raised))
            worker.pause(0.2)
        life += 1
    reads.close()
    worker.tell("ended", left=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
