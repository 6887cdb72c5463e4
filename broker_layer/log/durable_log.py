"""Interface between a coordinator and the log of one of its state partitions.

Leaves the implementation to `state_log`.
"""

from asyncio import Future
from collections.abc import Callable, Iterable
from typing import Protocol

from broker_layer.errors import TopicError


class DurableLog(Protocol):
    """The records of one state partition, in order (`state_log.StateLog`)."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads the partition."""

    @property
    def lead_refusal(self) -> TopicError | None:
        """Why this broker may not answer for the partition now; None if it may."""

    async def confirm_lead(self) -> None:
        """Return once it is certain that no other broker had taken the partition over before this
        call. Raises TopicError: NOT_COORDINATOR if one had, COORDINATOR_LOAD_IN_PROGRESS if that is
        not known.
        """

    def append(self, record: bytes) -> Future[None]:
        """Append in order; the future is done when the record is durable. Raises TopicError if
        the log does not accept it.
        """

    async def aclose(self) -> None:
        """Close the log in order."""


class OpenDurableLog(Protocol):
    """Function that takes a state partition over, in its present epoch."""

    async def __call__(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> DurableLog:
        """Replay all records through `load`, and open the log."""
