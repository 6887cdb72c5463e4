"""Many events write few lines, and the next line says how many were left out."""

import logging

import pytest

from quire.server.server_log import (
    EVENT_PERIOD_S,
    LINES_PER_EVENT_MAX,
    LOGGER,
    JsonFormatter,
    ServerLog,
    SessionLog,
)


def test_an_event_writes_few_lines_in_a_period(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    log = ServerLog(lambda: now_s)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        for number in range(LINES_PER_EVENT_MAX + 3):
            log.warning("bad frame", number=number)
        log.info("another event")
        now_s += EVENT_PERIOD_S
        log.warning("bad frame", number=99)
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert len(lines) == LINES_PER_EVENT_MAX + 2
    assert lines[0].endswith('"level": "warning", "event": "bad frame", "number": 0}')
    assert lines[-1].endswith('"event": "bad frame", "number": 99, "left_out": 3}')


def test_failure_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        try:
            raise KeyError("lost")
        except KeyError as error:
            ServerLog(lambda: 0.0).failure("request failed", error)
    assert "KeyError: 'lost'" in JsonFormatter().format(caplog.records[0])


def test_the_session_is_logged_when_it_is_lost_and_back(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    note = SessionLog(ServerLog(lambda: now_s), lambda: now_s)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        note("connected")
        note("suspended")
        now_s += 12.5
        note("expired")
        note("connected")
        note("closed")
    events = [(record.message, getattr(record, "fields", {})) for record in caplog.records]
    assert events == [
        ("metadata connection lost", {}),
        ("metadata session expired", {}),
        ("metadata connected again", {"away_s": 12.5}),
    ]


def test_an_earlier_time_begins_another_period(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    log = ServerLog(lambda: now_s)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        for _ in range(LINES_PER_EVENT_MAX + 1):
            log.info("event")
        now_s = 1.0  # another loop
        log.info("event")
    assert len(caplog.records) == LINES_PER_EVENT_MAX + 1
