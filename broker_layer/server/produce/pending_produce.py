"""One Produce request whose partitions' results are awaited.

Leaves checking and appending batches to `produce`.

Invariants: a partition's result is the first of the append's result and REQUEST_TIMED_OUT, after
which the append may still be committed; the request is answered when every partition has a result.

Source: Kafka's meaning of `acks`; KIP-467 (messages of errors).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordError
from broker_layer.kafka.produce_codec import ProduceRequest
from broker_layer.log.appending.pending_batches import Appended
from broker_layer.server.exchange import Exchange

if TYPE_CHECKING:
    import asyncio

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
"""The append time in the answer if the topic does not use append times."""
TEXT_CHARACTERS_MAX: Final = 1_000
"""Maximum length of the text of one partition's error. It may name the topic, whose name in the
request has any length, and a request may have 10,000 partitions."""
NOT_APPENDED: Final = Appended(NO_OFFSET, NO_TIMESTAMP, NO_OFFSET)


@dataclass(slots=True, eq=False)
class PartitionOutcome:
    """Result of one partition's batch."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    records: Sequence[RecordError] = ()
    """The records because of which the batch was refused."""
    appended: Appended = NOT_APPENDED
    is_known: bool = False

    def refuse(self, error: ErrorCode, text: str) -> None:
        """Set the error of a refused batch."""
        self.error, self.text, self.is_known = error, text[:TEXT_CHARACTERS_MAX] or None, True

    def accept(self, appended: Appended) -> None:
        """Set the result of a committed append."""
        self.appended = appended
        self.is_known = True


@dataclass(slots=True, eq=False, repr=False)
class PendingProduce:
    """A Produce request whose batches are or were given to the logs."""

    exchange: Exchange
    request: ProduceRequest
    _finish: Callable[["PendingProduce"], None]
    """Called once."""
    _failed: Callable[[Exchange, BaseException], None]
    """Called with every error that is not a TopicError."""
    outcomes: list[PartitionOutcome] = field(default_factory=list, init=False)
    is_over: bool = field(default=False, init=False)
    on_end: Callable[[], None] | None = field(default=None, init=False)
    """Called when the request is over, answered or not."""
    _waiting: int = field(default=1, init=False)
    """Number of appends that are awaited, and one until all batches were given to the logs."""

    def wait_for(self, outcome: PartitionOutcome, future: "asyncio.Future[Appended]") -> None:
        """Set the outcome when the future of an append is done."""
        if future.done():
            self._take(outcome, future)
            return
        self._waiting += 1
        future.add_done_callback(partial(self._arrived, outcome))

    def finish_if_known(self) -> bool:
        """Answer if no append is awaited; return whether the request is over. Call it once, when
        all batches were given to the logs.
        """
        self._waiting -= 1
        if not self._waiting and not self.is_over:
            self._end()
        return self.is_over

    def time_out(self) -> None:
        """Answer now; uncommitted batches may still be committed later."""
        if self.is_over:
            return
        for outcome in self.outcomes:
            if not outcome.is_known:
                outcome.refuse(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "the batch was not committed in time; it may still be committed later",
                )
        self._end()

    def abandon(self) -> None:
        """End without an answer, because the connection is closed."""
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
            future.exception()  # mark it as retrieved: nothing else reads it

    def _take(self, outcome: PartitionOutcome, future: "asyncio.Future[Appended]") -> None:
        if future.cancelled():
            outcome.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the append was cancelled")
            return
        error = future.exception()
        if error is None:
            outcome.accept(future.result())
        elif isinstance(error, TopicError):
            outcome.refuse(error.code, error.text)
        else:
            self._failed(self.exchange, error)
            outcome.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "the append failed")

    def _end(self) -> None:
        self.is_over = True
        if self.on_end is not None:
            self.on_end()
        self._finish(self)
