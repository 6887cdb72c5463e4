"""Failures of topics that a caller can meet, with Kafka's error codes.

Leaves the codes themselves to `kafka.error_codes`.
"""

from collections.abc import Sequence

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordError
from quire.copyable import CopyableError


class TopicError(CopyableError):
    """A request to a topic, group or transaction was refused or failed; `code` is Kafka's code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class RecordsRefusedError(TopicError):
    """A batch was refused because of some of its records; `records` names those that are known."""

    def __init__(self, code: ErrorCode, text: str, records: Sequence[RecordError]) -> None:
        super().__init__(code, text)
        self.records = records


class LeftConnectionError(CopyableError):
    """A producer's request came late on a connection that it has left. Close the connection: only a
    producer that still uses it notices, and repeats the request on its next connection.
    """


def check_connection(transactional_id: str, newest: int, connection_id: int) -> None:
    """Raise LeftConnectionError if a producer has acted on a newer connection than this one."""
    if connection_id < newest:
        raise LeftConnectionError(
            f"the producer of transactional id {transactional_id!r} has gone on with another"
            " connection since: repeat the request on a new one"
        )


def unknown_topic(name: str) -> TopicError:
    """Return the error for a topic that does not exist."""
    return TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def unknown_partition(topic: str, partition: int) -> TopicError:
    """Return the error for a partition that does not exist."""
    text = f"there is no {topic}-{partition}"
    return TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def code_in(error: TopicError | None) -> ErrorCode:
    """Return the code of an error, or of none."""
    return ErrorCode.NONE if error is None else error.code


def code_of(number: int) -> ErrorCode:
    """Return the error code of a number; UNKNOWN_SERVER_ERROR for an unknown number."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
