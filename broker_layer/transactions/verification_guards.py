"""Remembers which verifications a marker overtook.

Leaves asking the coordinator to `verification`, and reporting markers to `local_markers`.

A leader asks the coordinator, is told that a transaction is open, and appends. If the transaction
ended in between, and its marker was appended here meanwhile, the batch would open a transaction
that nobody ends. So a confirmation is void once a marker of its producer came after its question.

Invariants: a guard is kept only between `begin` and `release`; a void guard stays void.

Source: KIP-890, "Ensure ongoing transaction for older clients".
"""

from types import TracebackType
from typing import Self

from broker_layer.transactions.values import TopicPartition

GuardKey = tuple[TopicPartition, int]


class Confirmation:
    """That a transaction was open when the coordinator was asked. Use it in a `with` statement."""

    def __init__(self, guards: "VerificationGuards", key: GuardKey) -> None:
        self._guards = guards
        self._key = key
        self._is_void = False

    def holds(self) -> bool:
        """Tell whether a batch may be appended, without waiting for anything first."""
        return not self._is_void

    def void(self) -> None:
        """Note that a marker came."""
        self._is_void = True

    def release(self) -> None:
        """End the guard; it holds no more."""
        self._is_void = True
        self._guards.forget(self._key, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class VerificationGuards:
    """The verifications under way on one broker."""

    def __init__(self) -> None:
        self._live: dict[GuardKey, dict[Confirmation, None]] = {}

    def begin(self, partition: TopicPartition, producer_id: int) -> Confirmation:
        """Guard a question that is about to be asked."""
        key = partition, producer_id
        confirmation = Confirmation(self, key)
        self._live.setdefault(key, {})[confirmation] = None
        return confirmation

    def marker_written(self, partition: TopicPartition, producer_id: int) -> None:
        """Void what was asked before; to be called when a marker is appended, before it returns."""
        for confirmation in self._live.pop((partition, producer_id), {}):
            confirmation.void()

    def forget(self, key: GuardKey, confirmation: Confirmation) -> None:
        """Drop a guard."""
        live = self._live.get(key)
        if live is not None:
            live.pop(confirmation, None)
            if not live:
                del self._live[key]

    @property
    def live_count(self) -> int:
        """How many guards are held."""
        return sum(len(live) for live in self._live.values())
