"""Says why a broker does not start or cannot go on.

Leaves refusals that travel to a client to `errors.TopicError`.
"""


class BrokerError(Exception):
    """The root of every failure of a broker's process."""

    retriable = False


class CannotListenError(BrokerError):
    """An address cannot be listened on."""

    def __init__(self, what: str, host: str, port: int, why: str) -> None:
        super().__init__(
            f"{what} cannot listen on {host}:{port} ({why}); choose another address or port"
        )
        self.host = host
        self.port = port
