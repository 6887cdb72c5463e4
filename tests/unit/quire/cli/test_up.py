"""Options of servers that `quire up` passes on."""

import pytest

from quire.cli.up import parser, passed_options
from quire.errors import UsageError


def test_variables_and_words_are_passed_on_and_words_override() -> None:
    variables = {
        "QUIRE_BROKER_OFFSETS_RETENTION_MS": "5000",
        "QUIRE_BROKER_DEFAULT_PARTITIONS": "7",
        "QUIRE_BOOKIE_CLEAN_INTERVAL_S": "2.5",
        "QUIRE_METADATA": "zk://elsewhere",
        "OTHER": "1",
    }
    words = parser().parse_args(
        [
            "--broker-option",
            "offsets-retention-ms=9000",
            "--broker-option=topic_defaults=retention.ms=1 segment.ms=100",
        ]
    )
    assert passed_options("broker", words.broker_option, variables) == {
        "offsets_retention_ms": "9000",
        "default_partitions": "7",
        "topic_defaults": "retention.ms=1 segment.ms=100",
    }
    assert passed_options("bookie", (), variables) == {"clean_interval_s": "2.5"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "offsets_retention=1",
            "unknown option: offsets_retention; did you mean offsets_retention_ms",
        ),
        ("offsets_retention_ms", "is not NAME=VALUE"),
        ("offsets_retention_ms=never", "must be a whole number"),
        ("listeners=PLAINTEXT://:9", "quire up chooses it"),
        ("frame-bytes-max=1073741824", "more than request_bytes_max"),
    ],
)
def test_wrong_options_are_refused_before_the_start(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        passed_options("broker", [word], {})


def test_a_variable_for_what_quire_up_chooses_is_refused() -> None:
    with pytest.raises(UsageError, match="data_dir cannot be given"):
        passed_options("bookie", (), {"QUIRE_BOOKIE_DATA_DIR": "/data"})


def test_options_of_the_console_are_checked_as_those_of_servers() -> None:
    variables = {"QUIRE_CONSOLE_SURVEY_EVERY_S": "5"}
    words = ["allow_writes=true"]
    expected = {"survey_every_s": "5", "allow_writes": "true"}
    assert passed_options("console", words, variables) == expected
    with pytest.raises(UsageError, match="port cannot be given"):
        passed_options("console", ["port=8000"], {})
    with pytest.raises(UsageError, match="SURVEY_EVERY_S"):
        passed_options("console", ["survey_every_s=0"], {})
