"""Collects the results of one Produce, partition by partition, and answers once.

Leaves checking and appending batches to `produce`.

Invariants: a partition's result is the first that comes: its append's, or REQUEST_TIMED_OUT, after
which the append may still be committed; the answer is given when every partition has a result.

Source: kafka.md 4, "acks"; KIP-467 (messages of errors).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.pending_batches import Appended

if TYPE_CHECKING:
    import asyncio

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
"""What the answer says of the time when the topic does not stamp batches."""


@dataclass(slots=True)
class PartitionOutcome:
    """What became of one partition's batch."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    text: str = ""
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    is_known: bool = False

    def refuse(self, error: ErrorCode, text: str) -> None:
        """Note a refusal."""
        self.error, self.text, self.is_known = error, text, True

    def accept(self, appended: Appended) -> None:
        """Note a committed append."""
        self.base_offset = appended.base_offset
        self.log_append_time_ms = appended.log_append_time_ms
        self.log_start_offset = appended.log_start_offset
        self.is_known = True


class PendingProduce:
    """One Produce whose batches were given to the logs."""

    __slots__ = ("_failed", "_finish", "_waiting", "is_over", "on_end", "outcomes")

    def __init__(
        self,
        outcomes: list[PartitionOutcome],
        finish: Callable[["PendingProduce"], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`finish` is called once; `failed` with what an append should never fail with."""
        self.outcomes = outcomes
        self.is_over = False
        self.on_end: Callable[[], None] | None = None
        """What is called when it is over, answered or not."""
        self._finish = finish
        self._failed = failed
        self._waiting = 0

    def wait_for(self, outcome: PartitionOutcome, future: "asyncio.Future[Appended]") -> None:
        """Take an append's result when it comes."""
        if future.done():
            self._take(outcome, future)
            return
        self._waiting += 1
        future.add_done_callback(lambda done: self._arrived(outcome, done))

    def finish_if_known(self) -> bool:
        """Answer, if nothing is waited for; tell whether the answer was given."""
        if not self._waiting and not self.is_over:
            self._end()
        return self.is_over

    def time_out(self) -> None:
        """Answer now: what is not committed may yet be."""
        if self.is_over:
            return
        for outcome in self.outcomes:
            if not outcome.is_known:
                outcome.refuse(
                    ErrorCode.REQUEST_TIMED_OUT, "not committed in time; it may yet be committed"
                )
        self._end()

    def abandon(self) -> None:
        """Answer nobody: the connection is gone."""
        self.is_over = True
        if self.on_end is not None:
            self.on_end()

    def _arrived(self, outcome: PartitionOutcome, future: "asyncio.Future[Appended]") -> None:
        self._waiting -= 1
        if not self.is_over:
            self._take(outcome, future)
            if not self._waiting:
                self._end()
        elif not future.cancelled():
            future.exception()  # seen: nobody else will look

    def _take(self, outcome: PartitionOutcome, future: "asyncio.Future[Appended]") -> None:
        if future.cancelled():
            outcome.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the append was given up")
            return
        error = future.exception()
        if error is None:
            outcome.accept(future.result())
        elif isinstance(error, TopicError):
            outcome.refuse(error.code, error.text)
        else:
            self._failed(error)
            outcome.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "the append failed")

    def _end(self) -> None:
        self.is_over = True
        if self.on_end is not None:
            self.on_end()
        self._finish(self)
