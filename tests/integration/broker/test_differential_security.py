"""Test that every operation of the differential check of security is answered as by Apache Kafka,
or as intended.

tests/differential/security/expected_differences.json lists the intended differences and their
reasons.
"""

import pytest

from tests.differential.comparison import compare
from tests.differential.security.__main__ import answers_of
from tests.differential.security.golden import expected_answers, recorded_answers

pytestmark = pytest.mark.long

OPERATIONS_MIN = 8_000


@pytest.mark.timeout(900)
async def test_every_operation_is_answered_as_by_kafka_or_as_intended() -> None:
    run = await answers_of("quire")
    assert list(compare(run, recorded_answers(), expected_answers()).unexpected) == []
    assert len(run.answers) >= OPERATIONS_MIN
