"""Tests of the remark about records that are not acknowledged."""

import threading
from collections import deque
from typing import SupportsIndex

import pytest

from quire.cli.topic import topic_data
from quire.cli.topic.topic_data import MissingAnswers
from quire.server.overriding import override
from tests.until import WAIT_S


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
        for each in waiting:
            each.is_done = True
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
