"""Errors of a metadata gateway and its connections.

Leaves all other errors of the metadata to `metadata.errors`.
"""

from metadata.errors import MetadataError, StoreRefusedError


class GatewayRefusedError(StoreRefusedError):
    """The gateway refused a request: this client does not have the right to it; see `path`."""

    def __init__(self, path: str, address: str, why: str) -> None:
        MetadataError.__init__(
            self, f"the metadata gateway at {address} refused a request for {path}: {why}"
        )
        self.path = path
        self.address = address
        self.why = why


class GatewayFormatError(MetadataError, ValueError):
    """The bytes are no message of the gateway's protocol."""
