"""Tests of every served version of every message: round trips, damage, and schema guards."""

from __future__ import annotations

import contextlib
import random
import struct
import uuid
from typing import TYPE_CHECKING

import pytest

from broker_layer.kafka import messages
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.messages import (
    GROUP_VERSION,
    ApiVersionsRequest,
    ApiVersionsResponse,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetCommitRequest,
    api_versions_response,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    refuse_api_versions,
    warm_up,
)
from broker_layer.kafka.primitives import ELEMENTS_MAX, varint
from broker_layer.kafka.versions import ADVERTISED, SERVED, ApiKey
from tests.support.broker_layer.sample_messages import sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka.protocol.api_message import ApiMessage

    from broker_layer.kafka.schema_guard import Json

LIBRARY_KEYS = [key for key in ApiKey if key not in (ApiKey.PRODUCE, ApiKey.FETCH)]
EVERY = [
    (key, version)
    for key in LIBRARY_KEYS
    for version in range(SERVED[key].min, SERVED[key].max + 1)
]


def kinds_of(api_key: ApiKey) -> tuple[type[ApiMessage], type[ApiMessage]]:
    name = "".join(part.capitalize() for part in api_key.name.split("_"))
    return getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")


def schema_versions(text: Json) -> tuple[int, int]:
    assert isinstance(text, str)
    first, _, last = text.rstrip("+").partition("-")
    return int(first), int(last or first)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_round_trips(api_key: ApiKey, version: int) -> None:
    rng = random.Random(f"{api_key}.{version}")
    for kind, decode in zip(kinds_of(api_key), (decode_request, decode_response), strict=True):
        for _ in range(3):
            message = sample(kind, version, rng)
            if isinstance(message, ApiVersionsResponse):
                message.error_code = 0  # with an error the library reads version 0
            encoded = bytes(encode_response(message, version))
            decoded = decode(api_key, version, encoded)
            assert decoded.to_dict(json=False) == message.to_dict(json=False)
            assert encode_request(decoded, version) == encoded
            assert decode(api_key, version, memoryview(encoded)) == decoded


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_damaged_message_raises_frame_error_or_decodes(api_key: ApiKey, version: int) -> None:
    rng = random.Random(f"{api_key}.{version}")
    request, _ = kinds_of(api_key)
    encoded = bytes(encode_request(sample(request, version, rng), version))
    for size in range(len(encoded)):
        with pytest.raises(KafkaFrameError):
            decode_request(api_key, version, encoded[:size])
    for _ in range(60):
        damaged = bytearray(encoded)
        for _ in range(rng.randint(1, 3)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 128, 254, 255))
        with contextlib.suppress(KafkaFrameError):
            decode_request(api_key, version, bytes(damaged))


@pytest.mark.parametrize("api_key", LIBRARY_KEYS)
def test_versions_match_schemas(api_key: ApiKey) -> None:
    served = SERVED[api_key]
    for kind in kinds_of(api_key):
        schema: Mapping[str, Json] = kind.json
        assert schema["apiKey"] == api_key
        first, last = schema_versions(schema["validVersions"])
        assert first <= served.min <= served.max <= last
        for version in range(served.min, served.max + 1):
            assert kind.flexible_version_q(version) == (version >= served.flexible_from)


def test_unserved_api_is_refused() -> None:
    for key, version in ((ApiKey.METADATA, 13), (ApiKey.METADATA, -1), (ApiKey.PRODUCE, 9)):
        with pytest.raises(UnsupportedVersionError):
            decode_request(key, version, b"")


def test_api_versions() -> None:
    for version in range(5):
        found = decode_response(ApiKey.API_VERSIONS, version, bytes(api_versions_response(version)))
        assert isinstance(found, ApiVersionsResponse)
        assert found.error_code == ErrorCode.NONE
        rows = {
            api_key.api_key: (api_key.min_version, api_key.max_version)
            for api_key in found.api_keys
        }
        assert rows == {key: (served.min, served.max) for key, served in ADVERTISED.items()}
        assert rows[ApiKey.ADD_PARTITIONS_TO_TXN] == (0, 3)  # 4 is for brokers
        features = [
            (feature.name, feature.max_version_level) for feature in found.finalized_features
        ]
        assert features == ([(GROUP_VERSION, 1)] if version >= 3 else [])
        assert [feature.min_version for feature in found.supported_features] == [1] * len(features)
    refusal = ApiVersionsResponse.decode(bytes(refuse_api_versions()), version=4)
    assert refusal.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert refusal.api_keys


def test_warm_up_reaches_every_api() -> None:
    assert sorted(dict.fromkeys(warm_up())) == LIBRARY_KEYS


def test_forbidden_null_is_refused() -> None:
    good = encode_request(OffsetCommitRequest(group_id="g", topics=[]), 8)
    assert decode_request(ApiKey.OFFSET_COMMIT, 8, bytes(good))
    with pytest.raises(KafkaFrameError):
        decode_request(ApiKey.OFFSET_COMMIT, 8, b"\0" + bytes(good[2:]))


def test_metadata_of_all_topics_is_null() -> None:
    found = decode_request(ApiKey.METADATA, 12, bytes(encode_request(MetadataRequest(), 12)))
    assert isinstance(found, MetadataRequest)
    null = decode_request(ApiKey.METADATA, 1, struct.pack(">i", -1))
    assert isinstance(null, MetadataRequest)
    assert null.topics is None


HOSTILE: list[tuple[ApiKey, int, bytes]] = [
    (ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    (ApiKey.METADATA, 1, struct.pack(">i", -2)),
    (ApiKey.METADATA, 1, struct.pack(">ih", 1, 32767) + b"short"),
    (ApiKey.METADATA, 1, struct.pack(">ih", 1, -2)),
    (ApiKey.METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    (ApiKey.METADATA, 9, b"\xff" * 1_000_000),
    (ApiKey.METADATA, 9, varint(2**32 - 1) + bytes(100)),
    (ApiKey.DESCRIBE_GROUPS, 0, struct.pack(">i", ELEMENTS_MAX + 1) + bytes(600_000)),
    (ApiKey.API_VERSIONS, 3, b"\x02a\x02b" + varint(2**32 - 1)),
    (ApiKey.API_VERSIONS, 3, b"\x02a\x02b\x01\x00" + varint(2**32 - 1) + bytes(4)),
]


@pytest.mark.parametrize(("api_key", "version", "data"), HOSTILE)
def test_hostile_counts_and_sizes(api_key: ApiKey, version: int, data: bytes) -> None:
    with pytest.raises(KafkaFrameError):
        decode_request(api_key, version, data)


def test_a_string_is_as_long_as_in_kafka_at_most() -> None:
    def decode(id_bytes: int) -> ApiMessage:
        request = InitProducerIdRequest(
            transactional_id="t" * id_bytes,
            transaction_timeout_ms=1,
            producer_id=-1,
            producer_epoch=-1,
        )
        return decode_request(ApiKey.INIT_PRODUCER_ID, 4, bytes(request.encode(version=4)))

    found = decode(0x7FFF)
    assert isinstance(found, InitProducerIdRequest)
    assert found.transactional_id == "t" * 0x7FFF
    with pytest.raises(KafkaFrameError, match="32768 B"):
        decode(0x8000)


def test_unknown_tagged_fields_are_ignored_up_to_limit() -> None:
    body = b"\x02a\x02b\x02" + b"\x07\x03abc" + varint(300) + b"\x00"
    found = decode_request(ApiKey.API_VERSIONS, 3, body)
    assert isinstance(found, ApiVersionsRequest)
    assert (found.client_software_name, found.client_software_version) == ("a", "b")
    topic = bytes(16) + b"\x02t" + b"\x01\x07\x00"
    body = varint(9_001) + topic * 9_000 + bytes(4)
    with pytest.raises(KafkaFrameError, match="tagged"):
        decode_request(ApiKey.METADATA, 12, body)


def test_topic_ids_are_uuids() -> None:
    number = uuid.UUID(int=5)
    topics = [
        MetadataRequest.MetadataRequestTopic(topic_id=number, name=None),
        MetadataRequest.MetadataRequestTopic(name="t"),
    ]
    encoded = bytes(encode_request(MetadataRequest(topics=topics), 12))
    found = decode_request(ApiKey.METADATA, 12, encoded)
    assert isinstance(found, MetadataRequest)
    assert found.topics is not None
    assert [(topic.topic_id, topic.name) for topic in found.topics] == [(number, None), (None, "t")]
