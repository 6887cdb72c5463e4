"""`quire topic produce|consume` with clients that are replaced by ones in memory."""

import argparse
import io
import json
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError

from quire.cli import topic as topic_data
from quire.cli.output import Output
from quire.cli.topic import MissingAnswers, TopicDataError, consume_topic, produce_topic
from quire.errors import ExitCode
from quire.operate.fields import Json
from quire.server.overriding import override
from tests.until import WAIT_S


@dataclass(slots=True)
class ConsumedRecord:
    """A record as a consumer of kafka-python returns it."""

    offset: int = 0
    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = 0
    timestamp: int = 1


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
        for sent in self._sent:
            sent.is_done = True

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


class Consumer:
    """A consumer of a partition with the records 2 to 4, and 5 to 9 after the first poll."""

    def __init__(self, **_: object) -> None:
        self._at, self._end = 0, 5

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these."""
        (self._partition,) = partitions

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the log begins."""
        return dict.fromkeys(partitions, 2)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the log ends."""
        return dict.fromkeys(partitions, self._end)

    def seek(self, _: TopicPartition, offset: int) -> None:
        """Go to an offset. Brokers refuse one beyond the end, and a consumer then begins again."""
        self._at = offset if offset <= self._end else 2

    def poll(self, timeout_ms: int, max_records: int | None) -> dict[TopicPartition, list[object]]:
        """Return up to the wanted number of records."""
        assert timeout_ms > 0
        end = self._end if max_records is None else min(self._end, self._at + max_records)
        offsets, self._at, self._end = range(self._at, end), end, 10
        return {self._partition: [ConsumedRecord(offset=n, value=b"%d" % n) for n in offsets]}

    def position(self, _: TopicPartition) -> int:
        """Return the next offset."""
        return self._at

    def close(self, *, autocommit: bool) -> None:
        """End."""
        assert not autocommit


@pytest.mark.parametrize(
    ("start", "follow", "count", "printed", "remark"),
    [
        ("3", False, None, [3, 4], ""),
        ("1", False, None, [2, 3, 4], "orders-0 begins at 2"),
        ("8", False, None, [], "orders-0 ends at 5: it has no record 8 yet"),
        ("8", True, 2, [8, 9], "orders-0 ends at 5"),
    ],
)
def test_no_record_before_a_given_offset_is_printed(
    start: str,
    follow: bool,
    count: int | None,
    printed: list[int],
    remark: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def found(*_: object, **__: object) -> tuple[dict[str, Any], list[int]]:
        return {}, [0]

    monkeypatch.setattr(topic_data, "_found", found)
    monkeypatch.setattr(topic_data, "KafkaConsumer", Consumer)
    printing = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printing))
    arguments = argparse.Namespace(
        topic="orders", partition=None, start=start, follow=follow, count=count, committed=False
    )
    remarks = io.StringIO()
    output = Output(as_json=False, results=io.StringIO(), remarks=remarks)
    assert consume_topic(arguments, output) == ExitCode.DONE
    assert list(map(int, printing.getvalue().split())) == printed
    assert remark in remarks.getvalue()


class Record:
    """A record on its way."""

    def __init__(self) -> None:
        self.is_done = False


class Waiting(deque[Record]):
    """Records on their way, which count how often the oldest one is asked for."""

    def __init__(self, *records: Record) -> None:
        super().__init__(records)
        self.look_count = 0
        self.are_seen = threading.Event()
        """Set after ten times the looks after which silence is reported."""

    @override
    def __getitem__(self, index: SupportsIndex) -> Record:  # type: ignore[override]
        self.look_count += 1
        if self.look_count == 100:
            self.are_seen.set()
        return super().__getitem__(index)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_data, "LOOK_S", 0.001)


def watched(
    waiting: deque[Record], reason: str = "no bookie is up"
) -> tuple[MissingAnswers[Record], list[str]]:
    remarks: list[str] = []
    watch = MissingAnswers(waiting, lambda: reason, remarks.append, quiet_s=0.01)
    return watch, remarks


def test_the_reason_is_printed_once() -> None:
    watch, remarks = watched(deque([Record()]))
    watch.start()
    watch.join()
    assert remarks == [
        "no record was acknowledged for 0.01 s: no bookie is up; it is still being sent"
    ]


def test_an_acknowledged_record_and_an_empty_queue_are_no_silence() -> None:
    for waiting in (Waiting(Record()), Waiting()):
        for record in waiting:
            record.is_done = True
        watch, remarks = watched(waiting)
        watch.start()
        assert waiting.are_seen.wait(WAIT_S)
        watch.end()
        watch.join()
        assert remarks == []


def test_a_record_that_is_acknowledged_meanwhile_is_not_reported() -> None:
    record = Record()
    remarks: list[str] = []

    def find_reason() -> str:
        record.is_done = True
        return "no bookie is up"

    watch = MissingAnswers(deque([record]), find_reason, remarks.append, quiet_s=0.01)
    watch.start()
    watch.join()
    assert remarks == []


def test_times_in_the_future_are_shown_with_what_removes_them() -> None:
    results = io.StringIO()
    output = Output(as_json=False, results=results, remarks=io.StringIO())
    rows: list[dict[str, Json]] = [
        {"partition": number, "end": 9, "future_offset": 4, "future_until_ms": until_ms}
        for number, until_ms in enumerate((None, 1_800_000_000_000, 2**62))
    ]
    topic_data._add_future_records("orders", rows, output)
    lines = results.getvalue().split("\n\n")
    assert [line.strip() for line in lines[-2:]] == [
        "partition 1: times in the future keep all records from offset 4 on until 2027-01-15 "
        "08:00:00 UTC; to remove them: quire topic trim orders --partition 1 --before 9 --yes",
        f"partition 2: times in the future keep all records from offset 4 on until {2**62} ms "
        "after 1970; to remove them: quire topic trim orders --partition 2 --before 9 --yes",
    ]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_null_and_empty_differ_and_headers_are_shown(
    as_json: bool,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    headers = [("trace", b"1"), ("trace", None), ("raw", b"\xff"), ("none", b"")]
    records = [
        ConsumedRecord(0, b""),
        ConsumedRecord(1, None),
        ConsumedRecord(2, b"v", b"", headers),
    ]
    text = io.TextIOWrapper(io.BytesIO())
    topic_data._print(records, Output(as_json=as_json, results=text, remarks=text))
    sys.stdout.buffer.flush()
    lines = capfdbinary.readouterr().out.splitlines()
    if not as_json:
        assert lines == [b"", b"null", b"v"]
        return
    rows = [json.loads(line) for line in lines]
    assert [row["value"] for row in rows] == ["", None, "v"]
    assert [row["key"] for row in rows] == [None, None, ""]
    assert [row["headers"] for row in rows] == [
        [],
        [],
        [
            {"key": "trace", "value": "1"},
            {"key": "trace", "value": None},
            {"key": "raw", "value_base64": "/w=="},
            {"key": "none", "value": ""},
        ],
    ]
