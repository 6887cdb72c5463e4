"""`quire topic produce` with a producer that is replaced by one that accepts or refuses records."""

import argparse
import io
import sys
from typing import Any

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError

from quire.cli.output import Output
from quire.cli.topic import topic_data
from quire.cli.topic.topic_data import TopicDataError, produce_topic
from quire.errors import ExitCode

ACCEPTED = 3
"""Number of records of a partition that is full then."""


class Sent:
    """A record on its way, whose answer arrives during the flush or before."""

    def __init__(self, error: KafkaError | None, *, is_done: bool) -> None:
        self.is_done = is_done
        self._error = error

    def get(self, timeout: float) -> None:
        """Return once the record is acknowledged."""
        assert timeout > 0
        assert self.is_done
        if self._error is not None:
            raise self._error


class Producer:
    """A producer whose brokers refuse all records after ACCEPTED ones."""

    error: KafkaError | None = None
    answers_at_once = False

    def __init__(self, **_: object) -> None:
        self._sent: list[Sent] = []

    def send(self, _topic: str, _value: bytes, **_: object) -> Sent:
        """Send a record."""
        error = self.error if len(self._sent) >= ACCEPTED else None
        self._sent.append(Sent(error, is_done=self.answers_at_once))
        return self._sent[-1]

    def flush(self, timeout: float) -> None:
        """Wait until all records are answered; as kafka-python's, raise no error of a record."""
        assert timeout > 0
        for each in self._sent:
            each.is_done = True

    def close(self, timeout: float) -> None:
        """End."""


def produce(monkeypatch: pytest.MonkeyPatch, lines: bytes) -> tuple[int, str]:
    async def found(*_: object, **__: object) -> tuple[dict[str, Any], list[int]]:
        return {}, [0]

    monkeypatch.setattr(topic_data, "_found", found)
    monkeypatch.setattr(topic_data, "KafkaProducer", Producer)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    arguments = argparse.Namespace(
        topic="orders", key_separator=None, partition=None, acks="all", create=False
    )
    results = io.StringIO()
    output = Output(as_json=True, results=results, remarks=io.StringIO())
    return produce_topic(arguments, output), results.getvalue()


@pytest.mark.parametrize("at_once", [False, True])
def test_acknowledged_records_are_counted(
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,
) -> None:
    monkeypatch.setattr(Producer, "answers_at_once", at_once)
    code, row = produce(monkeypatch, b"line\n" * 5)
    assert (code, row) == (ExitCode.DONE, '{"topic": "orders", "records": 5}\n')


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicAuthorizationFailedError("no"), ExitCode.REFUSED),
        (KafkaTimeoutError("late"), ExitCode.UNAVAILABLE),
    ],
)
def test_a_refused_record_ends_the_command_and_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
    error: KafkaError,
    code: ExitCode,
    at_once: bool,
) -> None:
    monkeypatch.setattr(Producer, "error", error)
    monkeypatch.setattr(Producer, "answers_at_once", at_once)
    with pytest.raises(TopicDataError, match=f"{ACCEPTED} records were acknowledged") as failure:
        produce(monkeypatch, b"line\n" * 5)
    assert failure.value.code is code
