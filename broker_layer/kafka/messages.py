"""Codec of Kafka's messages: a safe interface to kafka-python. No other module imports that.

Leaves Produce and Fetch, the hot path of brokers, to `kafka.produce_codec` and `kafka.fetch_codec`,
headers to `kafka.frames`, and the rights of a client to `broker_layer.security.authorizer`.

Use: create a message with the fields of its schema, in lower case with underscores. A field that a
version lacks reads as its default, and is not written. Never append to a list that is a default:
all messages share it. Topic ids are `uuid.UUID`; the null id is None. Messages of the newer
consumer groups, which kafka-python lacks, have schemas in `kafka/schemas`, like its own.

Invariants: for any bytes, `decode_request`, `decode_response` and `decode_fetched` return a message
of its schema or raise KafkaFrameError; bytes are decoded only after the guard of their schema has
checked them.

Source: Kafka's message definitions; KIP-429 (assignments), KIP-430 (authorized operations),
KIP-848, KIP-1082 (version 1 of the heartbeat: the member chooses its id, and may subscribe with a
pattern), KIP-1099 (version 1 of the description states the type of a member).
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka.protocol.admin.acl import *  # noqa: F403 - each message is found here
from kafka.protocol.admin.client_quotas import *  # noqa: F403
from kafka.protocol.admin.cluster import *  # noqa: F403
from kafka.protocol.admin.configs import *  # noqa: F403
from kafka.protocol.admin.groups import *  # noqa: F403
from kafka.protocol.admin.topics import *  # noqa: F403
from kafka.protocol.admin.transactions import *  # noqa: F403
from kafka.protocol.admin.users import *  # noqa: F403
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.group import *  # noqa: F403
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.consumer.offsets import *  # noqa: F403
from kafka.protocol.metadata.api_versions import *  # noqa: F403
from kafka.protocol.metadata.api_versions import ApiVersionsResponse
from kafka.protocol.metadata.find_coordinator import *  # noqa: F403
from kafka.protocol.metadata.metadata import *  # noqa: F403
from kafka.protocol.producer.transaction import *  # noqa: F403
from kafka.protocol.sasl import *  # noqa: F403

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.primitives import INT16, count_of
from broker_layer.kafka.schema_guard import guard_of
from broker_layer.kafka.versions import ADVERTISED, SERVED, ApiKey
from metadata.security.acls import Operation

if TYPE_CHECKING:
    import uuid

    from kafka.protocol.data_container import DataContainer


Guard = Callable[[memoryview], None]

GROUP_VERSION: Final = "group.version"
"""The one feature of KIP-584 that is served, and always on: groups of KIP-848."""
PIECE_ELEMENTS: Final = 100
_DAMAGE: Final = (ValueError, IndexError, struct.error)
"""Errors that the library can raise after the guard's check, for text that is not UTF-8."""

SCHEMAS: Final = "broker_layer.kafka.schemas"


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=SCHEMAS):
    """A member joins, stays alive, reports the partitions that it owns, or leaves."""

    if TYPE_CHECKING:

        class TopicPartitions(DataContainer):
            """Some partitions of a topic."""

            topic_id: uuid.UUID | None
            partitions: list[int]

        group_id: str
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int
        subscribed_topic_names: list[str] | None
        subscribed_topic_regex: str | None
        server_assignor: str | None
        topic_partitions: list[TopicPartitions] | None


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=SCHEMAS):
    """The member's epoch, the heartbeat interval, and the member's assignment if it changed."""

    if TYPE_CHECKING:

        class Assignment(DataContainer):
            """The partitions assigned to a member."""

            class TopicPartitions(DataContainer):
                """Some partitions of a topic."""

                topic_id: uuid.UUID | None
                partitions: list[int]

            topic_partitions: list[TopicPartitions]

        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval_ms: int
        assignment: Assignment | None


class ConsumerGroupDescribeRequest(ApiMessage, load_json=SCHEMAS):
    """The groups to describe."""

    if TYPE_CHECKING:
        group_ids: list[str]
        include_authorized_operations: bool


class ConsumerGroupDescribeResponse(ApiMessage, load_json=SCHEMAS):
    """Groups with their members; both assignments of a member are required."""

    if TYPE_CHECKING:

        class DescribedGroup(DataContainer):
            """One group, or the error why it is not described."""

            class Member(DataContainer):
                """One member."""

                class Assignment(DataContainer):
                    """The partitions assigned to a member."""

                    class TopicPartitions(DataContainer):
                        """Some partitions of a topic."""

                        topic_id: uuid.UUID | None
                        topic_name: str
                        partitions: list[int]

                    topic_partitions: list[TopicPartitions]

                member_id: str
                instance_id: str | None
                rack_id: str | None
                member_epoch: int
                client_id: str
                client_host: str
                subscribed_topic_names: list[str]
                subscribed_topic_regex: str | None
                assignment: Assignment
                target_assignment: Assignment
                member_type: int

            error_code: int
            error_message: str | None
            group_id: str
            group_state: str
            group_epoch: int
            assignment_epoch: int
            assignor_name: str
            members: list[Member]
            authorized_operations: int

        throttle_time_ms: int
        groups: list[DescribedGroup]


_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    key: (globals()[f"{key.shown}Request"], globals()[f"{key.shown}Response"])
    for key in SERVED
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH)
}
"""Request and answer of each API, which are called as Kafka calls it."""


def request_class(api_key: ApiKey) -> type[ApiMessage]:
    """Return the class of an API's requests; Produce and Fetch have none."""
    return _MESSAGES[api_key][0]


def response_class(api_key: ApiKey) -> type[ApiMessage]:
    """Return the class of an API's answers; Produce and Fetch have none."""
    return _MESSAGES[api_key][1]


def decode_request(api_key: ApiKey, version: int, data: bytes | memoryview) -> ApiMessage:
    """Decode the body of a request of any API except Produce and Fetch.

    Raises KafkaFrameError if it is damaged, UnsupportedVersionError if the version is not served.
    """
    return _decode(_served(api_key, version)[0], version, data)


def decode_response(api_key: ApiKey, version: int, data: bytes | memoryview) -> ApiMessage:
    """Decode the body of another broker's answer. Raises the same errors as `decode_request`."""
    return _decode(_served(api_key, version)[1], version, data)


def encode_response(response: ApiMessage, version: int) -> bytearray:
    """Encode the body of an answer."""
    return _encode(response, version)


def answer_pieces(response: ApiMessage, version: int) -> Iterator[bytearray | bytes]:
    """Encode the body of an answer piece by piece, so that a server can do other work meanwhile.

    Its longest array is encoded PIECE_ELEMENTS elements at a time.
    """
    name, rows = _longest_array(response, version)
    if len(rows) <= PIECE_ELEMENTS:
        yield _encode(response, version)
        return
    is_flexible = response.flexible_version_q(version)

    def encoded_with(some: list[object]) -> tuple[bytearray, int]:
        setattr(response, name, some)
        return _encode(response, version), len(count_of(len(some), is_flexible=is_flexible))

    none, count_bytes = encoded_with([])
    one, _ = encoded_with(rows[:1])
    # The count is the first difference, in its last byte.
    differs_at = next(at for at, (a, b) in enumerate(zip(none, one, strict=False)) if a != b)
    after_count = differs_at + 1
    start = after_count - count_bytes
    yield none[:start] + count_of(len(rows), is_flexible=is_flexible)
    for first in range(0, len(rows), PIECE_ELEMENTS):
        some, some_bytes = encoded_with(rows[first : first + PIECE_ELEMENTS])
        yield some[start + some_bytes : len(some) - (len(none) - after_count)]
    setattr(response, name, rows)
    yield none[after_count:]


def _longest_array(message: ApiMessage, version: int) -> tuple[str, list[object]]:
    struct = message._struct  # noqa: SLF001 - the library has no other list of fields
    assert struct is not None, "each message has fields"
    fields = struct.untagged_fields(version)
    arrays = [(part.name, getattr(message, part.name)) for part in fields if part.is_struct_array()]
    return max(
        ((name, rows) for name, rows in arrays if isinstance(rows, list)),
        key=lambda array: len(array[1]),
        default=("", []),
    )


def encode_request(request: ApiMessage, version: int) -> bytearray:
    """Encode the body of a request to another broker.

    Raises KafkaFrameError if the other one would refuse it.
    """
    encoded = _encode(request, version)
    _guard(type(request), version)(memoryview(encoded))
    return encoded


@cache
def api_versions_response(version: int) -> bytes:
    """Encode the table of the versions that are served."""
    return bytes(_api_versions(version, ErrorCode.NONE))


def refuse_software_name(version: int) -> bytearray:
    """Encode the answer to an ApiVersions request with an invalid software name (KIP-511)."""
    return _encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]), version)


def refuse_api_versions() -> bytearray:
    """Encode the answer, in version 0, to an ApiVersions request of a version that is not served.

    The client repeats the request in a version of the table (KIP-511).
    """
    return _api_versions(0, ErrorCode.UNSUPPORTED_VERSION)


def warm_up() -> Iterator[ApiKey]:
    """Compile the codecs of every served version: one version of one API per step, about 5 ms each.

    The library compiles them at a message's first use. A server lets its event loop run between
    the steps.
    """
    for api_key, (request, response) in _MESSAGES.items():
        served = SERVED[api_key]
        for version in range(served.min, served.max + 1):
            for kind in (request, response):
                _guard(kind, version)
                _encode(kind(version=version), version)
                try:
                    kind.decode(b"", version=version)
                except _DAMAGE:
                    continue  # expected: the codec is compiled before the first byte is read
            yield api_key


def _api_versions(version: int, error: ErrorCode) -> bytearray:
    rows = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=served.min, max_version=served.max)
        for key, served in ADVERTISED.items()
    ]
    supported = ApiVersionsResponse.SupportedFeatureKey(
        name=GROUP_VERSION, min_version=1, max_version=1
    )
    finalized = ApiVersionsResponse.FinalizedFeatureKey(
        name=GROUP_VERSION, min_version_level=1, max_version_level=1
    )
    response = ApiVersionsResponse(
        error_code=error,
        api_keys=rows,
        supported_features=[supported],
        finalized_features_epoch=0,
        finalized_features=[finalized],
    )
    return _encode(response, version)


def _served(api_key: ApiKey, version: int) -> tuple[type[ApiMessage], type[ApiMessage]]:
    if api_key not in _MESSAGES or not SERVED[api_key].serves(version):
        raise UnsupportedVersionError(api_key, version, -1)
    return _MESSAGES[api_key]


@cache
def _guard(kind: type[ApiMessage], version: int) -> Guard:
    return guard_of(kind.json, version)


def _decode(kind: type[ApiMessage], version: int, data: bytes | memoryview) -> ApiMessage:
    view = memoryview(data)
    _guard(kind, version)(view)
    try:
        message: ApiMessage = kind.decode(view, version=version)
    except _DAMAGE as error:
        raise KafkaFrameError(f"{kind.name} version {version}: {error}") from error
    message._header = None  # noqa: SLF001 - the library leaves it unset, and then cannot encode
    return message


def _encode(message: ApiMessage, version: int) -> bytearray:
    encoded: bytearray = message.encode(version=version)
    return encoded


def note_throttle(response: ApiMessage, throttle_s: float) -> None:
    """Write a pause because of a quota into an answer; of some APIs answers have no such field."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = int(throttle_s * 1000)  # type: ignore[attr-defined]  # it has it


def throttle_of(response: ApiMessage) -> float:
    """Return the pause in seconds that an answer contains."""
    return float(getattr(response, "throttle_time_ms", None) or 0) / 1000


ASSIGNMENT_VERSION_MAX: Final = 3
"""The newest version whose fields are known."""


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Return what the leader of a classic group of consumers assigned to a member, as pairs (topic,
    partition) in the order of the bytes; None for bytes in another format, for example of a
    protocol that is not the consumers'.

    Format: int16 version, then the body of Kafka's ConsumerProtocolAssignment. A newer version
    begins with the fields of the newest known one.
    """
    if not assignment:
        return ()
    try:
        (version,) = INT16.unpack_from(assignment)
        if version < 0:
            return None
        known = min(version, ASSIGNMENT_VERSION_MAX)
        body = memoryview(assignment)[INT16.size :]
        _guard(ConsumerProtocolAssignment, known)(body)
        decoded = ConsumerProtocolAssignment.decode(bytes(body), version=known, header=False)
    except (KafkaFrameError, ValueError, IndexError, struct.error):
        return None
    return tuple(
        (assigned_partition.topic, partition)
        for assigned_partition in decoded.assigned_partitions
        for partition in assigned_partition.partitions
    )


FETCH_VERSION: Final = 12
"""The last version that names topics, and a flexible one."""


class Fetched(NamedTuple):
    """The answer to a Fetch of one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: bytes
    """Record batches; the last one may be incomplete."""


def encode_fetch(
    topic: str, partition: int, offset: int, *, bytes_max: int, max_wait_ms: int = 0
) -> bytes:
    """Encode a Fetch of a tool that reads a few records of one partition: those from an offset on,
    uncommitted ones included.
    """
    kind = FetchRequest.FetchTopic
    asked = kind.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    request = FetchRequest(
        topics=[kind(topic=topic, partitions=[asked])],
        forgotten_topics_data=[],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
    )
    return bytes(request.encode(version=FETCH_VERSION))


def decode_fetched(data: memoryview) -> Fetched:
    """Decode the answer to such a Fetch. Raises KafkaFrameError."""
    answer = _decode(FetchResponse, FETCH_VERSION, data)
    assert isinstance(answer, FetchResponse), "it was decoded as one"
    if answer.error_code:
        return Fetched(answer.error_code, -1, -1, b"")
    if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
        raise KafkaFrameError("an answer to a Fetch of one partition has another number of them")
    row = answer.responses[0].partitions[0]
    records = bytes(row.records) if row.records is not None else b""
    return Fetched(row.error_code, row.high_watermark, row.log_start_offset, records)


# Operations that apply to a kind of resource; without an authorizer, each client may perform them.
TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def bits_of(operations: Iterable[Operation]) -> int:
    """Return the bit field of operations, in answers to requests that ask for it."""
    return sum(1 << operation for operation in operations)
