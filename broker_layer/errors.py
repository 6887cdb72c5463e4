"""The failures of topics that a caller can meet; each carries the code that Kafka gives it.

Leaves the codes themselves to `kafka.error_codes`.
"""

from broker_layer.kafka.error_codes import ErrorCode


class TopicError(Exception):
    """A request to a topic, group or transaction was refused or failed; `code` is Kafka's."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
