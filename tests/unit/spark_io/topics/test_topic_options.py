"""Options of topics are checked before any connection; each error names the option."""

import pytest

from spark_io.errors import OptionError
from spark_io.topics.options import TopicReadOptions, TopicWriteOptions

ADDRESS = {"metadata": "zk://127.0.0.1:2181/quire"}


def reading(**options: str) -> TopicReadOptions:
    return TopicReadOptions.of({**ADDRESS, "topic": "orders", **options})


def writing(**options: str) -> TopicWriteOptions:
    return TopicWriteOptions.of({**ADDRESS, **options})


def test_defaults() -> None:
    read, write = reading(), writing()
    assert read.topics == ("orders",)
    assert (read.starting_offsets, read.ending_offsets) == ("earliest", "latest")
    assert read.is_committed
    assert read.include_headers
    assert read.fail_on_data_loss
    assert (write.topic, write.bootstrap_servers, write.compression) == ("", (), "none")


def test_several_topics_and_servers() -> None:
    assert reading(topic="a, b,a").topics == ("a", "b")
    assert writing(bootstrapServers="h:1, g:2").bootstrap_servers == ("h:1", "g:2")
    assert writing(bootstrapServers="[::1]:9").bootstrap_servers == ("[::1]:9",)


def test_isolation() -> None:
    assert not reading(**{"isolation.level": "READ_UNCOMMITTED"}).is_committed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ""}, "missing"),
        ({"topic": "a,"}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"isolation.level": "serializable"}, "isolation.level"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"minPartitions": "1000000000000"}, "is over 100000"),
        ({"includeHeader": "true"}, "did you mean 'includeHeaders'"),
    ],
)
def test_wrong_options_of_a_read(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        reading(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "a/b"}, "topic"),
        ({"compression": "zip"}, "none of none, gzip, snappy, lz4, zstd"),
        ({"bootstrapServers": "x"}, "'x' is not an address such as broker-1:9092"),
        ({"bootstrapServers": "h:1,g:"}, "'g:' is not an address"),
    ],
)
def test_wrong_options_of_a_write(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        writing(**options)


def test_exactly_once() -> None:
    write = writing(topic="t", exactlyOnce="true", txnAppId="nightly", txnVersion="4")
    assert (write.exactly_once, write.application, write.batch) == (True, "nightly", 4)
    with pytest.raises(OptionError, match="needs the option topic"):
        writing(exactlyOnce="true")
    with pytest.raises(OptionError, match="no effect without exactlyOnce"):
        writing(topic="t", txnAppId="nightly")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnVersion": "4"}, "needs txnAppId"),
        ({"txnVersion": "4", "exactlyOnce": "true"}, "needs txnAppId"),
        ({"txnVersion": str(2**63), "exactlyOnce": "true", "txnAppId": "a"}, "is over"),
    ],
)
def test_numbers_of_runs_that_cannot_be_recorded(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        writing(topic="t", **options)
