"""Tests of the headers of requests and responses, compared with kafka-python."""

import pytest
from kafka.protocol.parser import KafkaProtocol

from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.frames import Buffer, read_request_header, response_frame
from broker_layer.kafka.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    OffsetDeleteRequest,
    api_versions_response,
    decode_request,
    encode_response,
    refuse_api_versions,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey

REQUESTS = {
    ApiKey.METADATA: MetadataRequest,
    ApiKey.API_VERSIONS: ApiVersionsRequest,
    ApiKey.HEARTBEAT: HeartbeatRequest,
    ApiKey.OFFSET_DELETE: OffsetDeleteRequest,
}
EVERY = [
    (key, version)
    for key in REQUESTS
    for version in range(ADVERTISED[key].min, ADVERTISED[key].max + 1)
]


@pytest.mark.parametrize(("api_key", "version"), EVERY)
@pytest.mark.parametrize("client_id", [None, "", "client-ü"])
def test_request_headers(api_key: ApiKey, version: int, client_id: str) -> None:
    request = REQUESTS[api_key](version=version)
    request.with_header(correlation_id=2**31 - 1, client_id=client_id)
    frame = memoryview(bytes(request.encode(header=True)))
    header = read_request_header(frame)
    assert header[:4] == (api_key, version, 2**31 - 1, client_id)
    decode_request(api_key, version, frame[header.body_start :])
    for size in range(header.body_start):
        with pytest.raises(KafkaFrameError):
            read_request_header(frame[:size])


def test_tagged_fields_of_header_are_ignored() -> None:
    frame = b"\0\x03\0\x0c\0\0\0\x07\0\x01c" + b"\x02\x00\x01a\x05\x02bc" + b"body"
    header = read_request_header(memoryview(frame))
    assert header.client_id == "c"
    assert frame[header.body_start :] == b"body"
    for damaged in (frame[:11] + b"\x02\x00\xff\xff\xff\xff\x0f", frame[:10] + b"\xff" * 8):
        with pytest.raises(KafkaFrameError):
            read_request_header(memoryview(damaged))


@pytest.mark.parametrize(
    ("number", "version"), [(3, 13), (18, 5), (55, 0), (-1, 0), (17, 2), (4, 0)]
)
def test_unserved_version_error_has_correlation_id(number: int, version: int) -> None:
    start = number.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big")
    with pytest.raises(UnsupportedVersionError) as raised:
        read_request_header(memoryview(start + b"\0\0\0\x09" + b"\xff" * 9))
    error = raised.value
    assert (error.api_key, error.version, error.correlation_id) == (number, version, 9)


@pytest.mark.parametrize("version", range(5))
def test_client_reads_response_headers(version: int) -> None:
    body = encode_response(HeartbeatResponse(error_code=27), version)
    sent = b"".join(response_frame(ApiKey.HEARTBEAT, version, 1, [body[:2], body[2:]]))
    client = KafkaProtocol()
    client.send_request(HeartbeatRequest(version=version))
    ((correlation_id, response),) = client.receive_bytes(sent)
    assert correlation_id == 1
    assert response.error_code == 27


@pytest.mark.parametrize("version", range(5))
def test_api_versions_answer_has_no_header_tags(version: int) -> None:
    for body in (api_versions_response(version), refuse_api_versions()):
        sent = b"".join(response_frame(ApiKey.API_VERSIONS, version, 1, [body]))
        client = KafkaProtocol()
        client.send_request(ApiVersionsRequest(version=version))
        ((_, response),) = client.receive_bytes(sent)
        assert len(response.api_keys) == len(ADVERTISED)


def test_response_frame_does_not_copy_buffers() -> None:
    body: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three")]
    frame = response_frame(ApiKey.FETCH, 12, 5, body)
    assert all(ours is theirs for ours, theirs in zip(frame[1:], body, strict=True))
    whole = b"".join(frame)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
