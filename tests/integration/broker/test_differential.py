"""Test that every operation of the differential check is answered as by Apache Kafka, or as
intended.

tests/differential/expected_differences.json lists the intended differences and their reasons.
"""

import pytest

from tests.differential.__main__ import answers_of
from tests.differential.comparison import compare, meant, recorded
from tests.kafka.brokers import broker

pytestmark = pytest.mark.long

OPERATIONS_MIN = 700


async def test_every_operation_is_answered_as_by_kafka_or_as_intended() -> None:
    async with broker("quire", brokers=1) as address:
        run = await answers_of(address, wanted={**recorded(), **meant()})
    assert list(compare(run, recorded()).unexpected) == []
    assert len(run.answers) >= OPERATIONS_MIN
