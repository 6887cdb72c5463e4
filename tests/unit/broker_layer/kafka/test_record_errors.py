"""Errors of single records in answers to Produce."""

import pytest
from kafka.protocol.producer import ProduceResponse

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordError
from broker_layer.kafka.primitives import CurrentLeader
from broker_layer.kafka.produce_codec import (
    ProducePartitionResult,
    ProduceTopicResult,
    encode_produce_response,
)


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("leader", [None, CurrentLeader(3, 5)])
def test_record_errors_are_in_answers_from_version_8_on(
    version: int, leader: CurrentLeader | None
) -> None:
    refused = ProducePartitionResult(
        6,
        ErrorCode.INVALID_RECORD,
        error_message="some",
        current_leader=leader,
        record_errors=[RecordError(0, "no key"), RecordError(7, None)],
    )
    encoded = encode_produce_response(version, [ProduceTopicResult("t", [refused])])
    found = ProduceResponse.decode(encoded, version=version)
    (row,) = found.responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_RECORD
    errors = [(error.batch_index, error.batch_index_error_message) for error in row.record_errors]
    assert errors == ([(0, "no key"), (7, None)] if version >= 8 else [])
    assert bytes(ProduceResponse(responses=found.responses).encode(version=version)) == encoded
