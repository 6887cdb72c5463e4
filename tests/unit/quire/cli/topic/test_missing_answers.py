"""Tests of the remark about records that are not acknowledged."""

import threading
from collections import deque

from quire.cli.topic.missing_answers import MissingAnswers


class Record:
    """A record on its way."""

    def __init__(self) -> None:
        self.is_done = False


def watched(
    waiting: deque[Record], reason: str = "no bookie is up"
) -> tuple[MissingAnswers[Record], list[str]]:
    remarks: list[str] = []
    watch = MissingAnswers(waiting, lambda: reason, remarks.append, quiet_s=1.0)
    return watch, remarks


def test_the_reason_is_printed_once() -> None:
    watch, remarks = watched(deque([Record()]))
    watch.start()
    watch.join()
    assert remarks == [
        "no record was acknowledged for 1 s: no bookie is up; it is still being sent"
    ]


def test_an_acknowledged_record_and_an_empty_queue_are_no_silence() -> None:
    for waiting in (deque([Record()]), deque[Record]()):
        for each in waiting:
            each.is_done = True
        watch, remarks = watched(waiting)
        watch.start()
        threading.Event().wait(2.0)
        watch.end()
        watch.join()
        assert remarks == []


def test_a_record_that_is_acknowledged_meanwhile_is_not_reported() -> None:
    record = Record()
    remarks: list[str] = []

    def find_reason() -> str:
        record.is_done = True
        return "no bookie is up"

    watch = MissingAnswers(deque([record]), find_reason, remarks.append, quiet_s=0.5)
    watch.start()
    watch.join()
    assert remarks == []
