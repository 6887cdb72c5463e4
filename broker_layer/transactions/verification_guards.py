"""Guards of verifications: a marker that comes during one makes its confirmation void.

Leaves requests to the coordinator to `verification`, and reporting markers to `local_markers`.

A leader verifies with the coordinator that a transaction is open, and then appends a batch. If the
transaction ended in between, and its marker was already appended here, the batch would open a
transaction that is never ended. So a confirmation is void if a marker of its producer was appended
after the request.

Invariants: a guard is kept only between `begin` and `release`; a void guard stays void.

Source: KIP-890, "Ensure ongoing transaction for older clients".
"""

from typing import Self

from broker_layer.transactions.values import TopicPartition

GuardKey = tuple[TopicPartition, int]


class Confirmation:
    """Confirmation that a transaction was open at the time of the request. Use it in a `with`
    statement.
    """

    def __init__(self, guards: "VerificationGuards", key: GuardKey) -> None:
        self._guards = guards
        self._key = key
        self._is_void = False

    def holds(self) -> bool:
        """Return whether a batch may be appended before the next `await`."""
        return not self._is_void

    def void(self) -> None:
        """Make it void, because a marker came."""
        self._is_void = True

    def release(self) -> None:
        """End the guard; the confirmation is void from then on."""
        self._is_void = True
        self._guards.remove(self._key, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class VerificationGuards:
    """The running verifications of one broker."""

    def __init__(self) -> None:
        self._live: dict[GuardKey, dict[Confirmation, None]] = {}

    def begin(self, partition: TopicPartition, producer_id: int) -> Confirmation:
        """Begin a guard, before the request to the coordinator."""
        key = partition, producer_id
        confirmation = Confirmation(self, key)
        self._live.setdefault(key, {})[confirmation] = None
        return confirmation

    def marker_written(self, partition: TopicPartition, producer_id: int) -> None:
        """Void all earlier confirmations. Call it when a marker is appended, before the next
        `await`.
        """
        for confirmation in self._live.pop((partition, producer_id), {}):
            confirmation.void()

    def remove(self, key: GuardKey, confirmation: Confirmation) -> None:
        """Drop a guard."""
        live = self._live.get(key)
        if live is not None:
            live.pop(confirmation, None)
            if not live:
                del self._live[key]
