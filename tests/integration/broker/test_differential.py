"""Every operation of the differential check is answered as Apache Kafka answered it, or as we mean
to: tests/differential/expected_differences.json says where and why.
"""

import pytest

from tests.differential.__main__ import answers_of
from tests.differential.comparison import compare, recorded
from tests.kafka.brokers import broker

pytestmark = pytest.mark.long

OPERATIONS_MIN = 700


@pytest.mark.timeout(300)
async def test_every_operation_is_answered_as_by_kafka() -> None:
    async with broker("quire", brokers=1) as address:
        run = await answers_of(address)
    assert list(compare(run, recorded()).unexpected) == []
    assert len(run.answers) >= OPERATIONS_MIN
