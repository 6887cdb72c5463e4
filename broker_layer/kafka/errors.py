"""Errors in received bytes of Kafka's protocol.

Leaves error codes to `kafka.error_codes`, and failures of topics to `broker_layer.errors`.
"""

from typing import NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from quire.copyable import CopyableError


class RecordError(NamedTuple):
    """Reason why one record of a batch is refused; `position` is that in the batch."""

    position: int
    text: str | None


class KafkaFrameError(CopyableError):
    """A frame is malformed; its connection must be closed."""


class UnsupportedVersionError(KafkaFrameError):
    """The API of a frame, or its version, is not served."""

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class RecordBatchError(CopyableError):
    """A record batch is refused; `code` is Kafka's error code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class DecompressionTooLargeError(RecordBatchError):
    """The decompressed records of a batch exceed `bytes_max`; no more than that was allocated."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE, f"the decompressed records exceed {bytes_max} B"
        )
        self.bytes_max = bytes_max
