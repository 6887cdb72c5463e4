"""Errors that prevent the start of any server, one class per fact."""

from typing import ClassVar

from quire.addresses import join_address
from quire.copyable import CopyableError


class CannotListenError(CopyableError):
    """A server cannot listen on an address."""

    retriable: ClassVar[bool] = False

    def __init__(self, what: str, host: str, port: int, why: str) -> None:
        super().__init__(
            f"{what} cannot listen on {join_address(host, port)} ({why});"
            " choose another address or port"
        )
        self.what = what
        self.host = host
        self.port = port
        self.why = why
