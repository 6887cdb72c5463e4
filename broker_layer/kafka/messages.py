"""Codec of Kafka's messages: a safe interface to kafka-python.

Leaves Produce and Fetch, the hot path, to `kafka.produce_codec` and `kafka.fetch_codec`, and
headers to `kafka.frames`. Only the modules of messages in this package import kafka-python.

Use: create a message with the fields of its schema, in lower case with underscores. A field that a
version lacks reads as its default, and is not written. Never append to a list that is a default:
all messages share it. Topic ids are `uuid.UUID`; the null id is None.

Invariants: for any bytes, `decode_request` returns a message of its schema or raises
KafkaFrameError; bytes are decoded only after the guard of their schema has checked them.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from broker_layer.kafka.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.primitives import count_of
from broker_layer.kafka.schema_guard import guard_of
from broker_layer.kafka.versions import ADVERTISED, SERVED, ApiKey

Guard = Callable[[memoryview], None]

_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.FIND_COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.JOIN_GROUP: (JoinGroupRequest, JoinGroupResponse),
    ApiKey.HEARTBEAT: (HeartbeatRequest, HeartbeatResponse),
    ApiKey.LEAVE_GROUP: (LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.SYNC_GROUP: (SyncGroupRequest, SyncGroupResponse),
    ApiKey.DESCRIBE_GROUPS: (DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.LIST_GROUPS: (ListGroupsRequest, ListGroupsResponse),
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.ADD_OFFSETS_TO_TXN: (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    ApiKey.END_TXN: (EndTxnRequest, EndTxnResponse),
    ApiKey.WRITE_TXN_MARKERS: (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    ApiKey.TXN_OFFSET_COMMIT: (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    ApiKey.DESCRIBE_ACLS: (DescribeAclsRequest, DescribeAclsResponse),
    ApiKey.CREATE_ACLS: (CreateAclsRequest, CreateAclsResponse),
    ApiKey.DELETE_ACLS: (DeleteAclsRequest, DeleteAclsResponse),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.DELETE_GROUPS: (DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.ELECT_LEADERS: (ElectLeadersRequest, ElectLeadersResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    ),
    ApiKey.OFFSET_DELETE: (OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    ),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: (DescribeTransactionsRequest, DescribeTransactionsResponse),
    ApiKey.LIST_TRANSACTIONS: (ListTransactionsRequest, ListTransactionsResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    ApiKey.LIST_CONFIG_RESOURCES: (ListConfigResourcesRequest, ListConfigResourcesResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    ),
    ApiKey.SASL_HANDSHAKE: (SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.SASL_AUTHENTICATE: (SaslAuthenticateRequest, SaslAuthenticateResponse),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    ApiKey.ALTER_CLIENT_QUOTAS: (AlterClientQuotasRequest, AlterClientQuotasResponse),
}
PIECE_ELEMENTS: Final = 100
_DAMAGE: Final = (ValueError, IndexError, struct.error)
"""Errors that the library can raise after the guard's check, for text that is not UTF-8."""


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
    arrays = [(each.name, getattr(message, each.name)) for each in fields if each.is_struct_array()]
    return max(
        ((name, rows) for name, rows in arrays if isinstance(rows, list)),
        key=lambda each: len(each[1]),
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
    return _encode(ApiVersionsResponse(error_code=error, api_keys=rows), version)


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
