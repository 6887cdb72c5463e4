"""What is wrong with bytes that were given to us as Kafka's.

Leaves the numbers of codes to `kafka.error_codes`, and failures of topics to `broker_layer.errors`.
"""

from broker_layer.kafka.error_codes import ErrorCode


class FrameError(Exception):
    """A frame cannot be read as what it says it is; its connection can only be closed."""


class UnsupportedVersionError(FrameError):
    """A frame is of an API, or of a version of one, that is not advertised."""

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class BatchError(Exception):
    """A record batch is refused; `code` is what Kafka answers."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class DecompressionTooLargeError(BatchError):
    """The records of a batch would take more than `bytes_max` bytes; nothing so large was held."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"records decompress to over {bytes_max} B")
        self.bytes_max = bytes_max
