"""Errors that prevent the start of any server, one class per fact.

Leaves errors of one kind of server to `bookie.errors`.
"""

from typing import ClassVar


class OptionError(Exception):
    """An option is unknown, of the wrong type, or out of bounds."""

    retriable: ClassVar[bool] = False


class CannotListenError(Exception):
    """A server cannot listen on an address."""

    retriable: ClassVar[bool] = False

    def __init__(self, what: str, host: str, port: int, why: str) -> None:
        super().__init__(
            f"{what} cannot listen on {host}:{port} ({why}); choose another address or port"
        )
        self.host = host
        self.port = port
