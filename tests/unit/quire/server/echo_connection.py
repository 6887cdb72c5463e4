"""Smallest connection of a server: echoes what it receives, or keeps it as an open request."""

from quire.server.connection import ServerConnection
from quire.server.connection_context import ConnectionContext
from quire.server.overriding import override

REQUEST_DEADLINE_S = 5.0


class EchoConnection(ServerConnection):
    """Connection that echoes; each received "?" stays a request until `answer`."""

    def __init__(self, context: ConnectionContext) -> None:
        super().__init__(context)
        self.open_requests = 0
        self.is_told = False
        self._buffer = bytearray(100)

    @property
    @override
    def is_idle(self) -> bool:
        return not self.open_requests

    @override
    def note_closing(self) -> None:
        self.is_told = True

    @override
    def _overdue_request(self, waited_s: float) -> str | None:
        return "no request" if waited_s > REQUEST_DEADLINE_S else None

    @override
    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        self.open_requests += data.count(b"?")
        self.answer(data.replace(b"?", b""))

    def answer(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)
