"""Options by the names of Spark's Kafka source become those of the `topic` source."""

import pytest

from spark_io.errors import OptionError
from spark_io.topics.options import TopicReadOptions, TopicWriteOptions, own_names

ADDRESS = {"metadata": "zk://127.0.0.1:2181/quire"}


def test_a_program_for_kafkas_source_needs_only_the_address_in_addition() -> None:
    given = {
        "kafka.bootstrap.servers": "h:1,g:2",
        "subscribe": "orders,returns",
        "startingOffsets": '{"orders":{"0":5}}',
        "endingOffsets": "latest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "10",
        "minPartitions": "4",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_uncommitted",
    }
    read = TopicReadOptions.of(ADDRESS | given)
    assert read.topics == ("orders", "returns")
    assert read.starting_offsets == '{"orders":{"0":5}}'
    assert (read.min_partitions, read.max_entries_per_trigger) == (4, 10)
    assert not read.is_committed
    write = TopicWriteOptions.of(
        ADDRESS
        | {"kafka.bootstrap.servers": "h:1, g:2", "topic": "t", "kafka.compression.type": "gzip"}
    )
    assert (write.bootstrap_servers, write.compression) == (("h:1", "g:2"), "gzip")


def test_names_are_compared_without_case_and_one_value_may_come_twice() -> None:
    assert own_names({"Subscribe": "a", "TOPIC": "a"}) == {"topic": "a"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a", "topic": "b"}, "'topic': contradicts subscribe"),
        ({"assign": '{"a":[0]}'}, "filter by the column partition"),
        ({"subscribePattern": "a.*"}, "name the topics with subscribe"),
        ({"startingTimestamp": "1"}, "not found by time"),
        ({"kafka.group.id": "g"}, "without a consumer group"),
        ({"kafka.security.protocol": "SSL"}, "docs/security.md"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_the_reason(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        own_names(options)
