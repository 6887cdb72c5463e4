"""One request between its arrival and its answer.

Leaves the order of answers to `connection`, and their content to the handlers.

Invariant: a request is answered once; later answers, and answers after its connection is closed,
are ignored.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from broker_layer.handlers import RequestContext
from broker_layer.kafka.frames import RequestHeader, response_frame
from quire.identity.principal import Principal

if TYPE_CHECKING:
    from broker_layer.server.quotas.work_time import WorkTime

Buffer = bytes | bytearray | memoryview


class Requester(Protocol):
    """The connection of a request, as handlers use it."""

    connection_id: int
    client_host: str
    listener: str
    principal: Principal
    is_private: bool

    @property
    def holder(self) -> str:
        """Return who holds what the client uses: its principal, or the network of one without."""

    def answered(self, exchange: "Exchange") -> None:
        """Send the answers that are next in order."""

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log."""

    def hold_reading(self, *, held: bool) -> None:
        """Stop or resume reading, because a handler has no room; holds are counted."""

    def reserve_now(self, exchange: "Exchange", count: int) -> bool:
        """Have `count` bytes reserved for an answer; return False if there is no room for more."""

    async def reserve(self, exchange: "Exchange", count: int) -> None:
        """Have `count` bytes reserved for an answer, when it is the client's turn."""

    def throttle(self, delay_s: float) -> None:
        """Stop reading for `delay_s`, because of a quota."""

    def when_first(self, exchange: "Exchange", start: Callable[[], None]) -> None:
        """Call `start` when every earlier request was answered and the peer reads its answers."""


class Exchange:
    """One request, and the sending of its answer."""

    __slots__ = (
        "answer_buffers",
        "api_key",
        "api_version",
        "arrived_s",
        "body",
        "client_id",
        "correlation_id",
        "deferred",
        "is_gone",
        "on_gone",
        "requester",
        "reserved",
        "size",
        "work",
    )

    def __init__(
        self,
        requester: Requester,
        header: RequestHeader,
        body: memoryview,
        size: int,
        arrived_s: float,
    ) -> None:
        """Create the exchange of a request that came at `arrived_s`, in a frame of `size` bytes."""
        self.requester = requester
        self.api_key, self.api_version, self.correlation_id, client_id, _ = header
        self.client_id = client_id or ""
        self.body = body
        self.size = size
        self.arrived_s = arrived_s
        self.answer_buffers: list[Buffer] | None = None
        self.deferred: Callable[[], None] | None = None
        """See `Requester.when_first`."""
        self.reserved = 0
        """Bytes that are reserved for its answer."""
        self.is_gone = False
        """Whether the connection is closed."""
        self.on_gone: Callable[[], None] | None = None
        """Called when the connection closes before the answer."""
        self.work: WorkTime | None = None
        """Time spent on it; None if it is not measured."""

    @property
    def context(self) -> RequestContext:
        """The origin of the request."""
        requester = self.requester
        return RequestContext(
            self.api_version,
            self.client_id,
            requester.client_host,
            requester.listener,
            requester.connection_id,
            requester.principal,
            requester.is_private,
        )

    def answer(self, body: Sequence[Buffer]) -> None:
        """Answer with a body in the request's version."""
        self.finish(response_frame(self.api_key, self.api_version, self.correlation_id, body))

    def finish(self, buffers: list[Buffer]) -> None:
        """Answer with a complete frame, or an empty list if the client expects no answer."""
        if self.answer_buffers is None and not self.is_gone:
            self.answer_buffers = buffers
            self.body = memoryview(b"")  # a large frame's buffer goes back to its pool
            self.on_gone = None
            self.requester.answered(self)

    def lose(self) -> None:
        """Note that the connection is closed."""
        self.is_gone = True
        self.deferred = None
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None and self.answer_buffers is None:
            on_gone()


RawHandler = Callable[[Exchange], None]
"""Handles a request as bytes without waiting, and answers it later. For APIs of the hot path."""
