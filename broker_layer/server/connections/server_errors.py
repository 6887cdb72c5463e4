"""Failures of a broker's process.

Leaves errors that clients receive to `errors.TopicError`.
"""


class BrokerError(Exception):
    """Base of all failures of a broker's process."""

    retriable = False


class CannotListenError(BrokerError):
    """The broker cannot listen on an address."""

    def __init__(self, what: str, host: str, port: int, why: str) -> None:
        super().__init__(
            f"{what} cannot listen on {host}:{port} ({why}); choose another address or port"
        )
        self.host = host
        self.port = port
