"""A server's connection pauses reading for any reason, and drops clients that miss deadlines."""

import asyncio
import logging
from unittest import mock

import pytest

from quire.server.connection import Pause
from quire.server.connection_context import ConnectionContext, ConnectionCounters, ConnectionLimits
from quire.server.server_log import LOGGER, ServerLog
from tests.unit.quire.server.echo_connection import REQUEST_DEADLINE_S, EchoConnection

LIMITS = ConnectionLimits(connections_max=2, write_stall_s=3.0)


class Opened:
    """An open connection over a transport that only records calls, and a clock."""

    def __init__(self, context: ConnectionContext | None = None) -> None:
        self.now_s = 0.0
        self.context = context or ConnectionContext(
            LIMITS, ConnectionCounters(), ServerLog(lambda: 0.0), lambda: self.now_s
        )
        self.connection = EchoConnection(self.context)
        self.transport = mock.Mock(asyncio.Transport)
        self.transport.is_closing.return_value = False
        self.transport.get_extra_info.side_effect = {"peername": ("a", 1)}.get
        self.connection.connection_made(self.transport)

    @property
    def counters(self) -> ConnectionCounters:
        return self.context.counters


def test_reading_is_paused_while_there_is_any_reason() -> None:
    opened = Opened()
    connection, transport = opened.connection, opened.transport
    connection.set_pause(Pause.REQUESTS_WAIT, on=False)
    connection.set_pause(Pause.REQUESTS_WAIT, on=True)
    connection.set_pause(Pause.REQUESTS_WAIT, on=True)
    connection.pause_writing()
    connection.set_pause(Pause.REQUESTS_WAIT, on=False)
    assert (transport.pause_reading.call_count, transport.resume_reading.call_count) == (1, 0)
    opened.now_s = 2.0
    connection.resume_writing()
    assert (transport.pause_reading.call_count, transport.resume_reading.call_count) == (1, 1)
    assert opened.counters.reading_paused == 1
    assert connection.overdue(2.0 + REQUEST_DEADLINE_S) is None, "the wait begins at the resumption"


def test_closing_transport_is_neither_paused_nor_resumed() -> None:
    opened = Opened()
    opened.connection.set_pause(Pause.CLOSING, on=True)
    opened.transport.is_closing.return_value = True
    opened.connection.set_pause(Pause.CLOSING, on=False)
    opened.connection.connection_lost(None)
    opened.connection.set_pause(Pause.CLOSING, on=True)
    assert opened.transport.pause_reading.call_count == 1
    assert opened.transport.resume_reading.call_count == 0


def test_client_must_read_its_answers_before_it_owes_a_request() -> None:
    opened = Opened()
    connection, limit_s = opened.connection, LIMITS.write_stall_s
    assert connection.overdue(REQUEST_DEADLINE_S) is None
    assert connection.overdue(REQUEST_DEADLINE_S + 0.1) == "no request"
    opened.now_s = 100.0
    connection.pause_writing()
    assert connection.overdue(100.0 + limit_s) is None
    assert connection.overdue(100.1 + limit_s) == "answers are not read"
    connection.check_deadlines(100.0 + limit_s)
    assert opened.transport.abort.call_count == 0
    connection.check_deadlines(100.1 + limit_s)
    assert opened.transport.abort.call_count == 1


def test_dropped_client_is_named_in_the_log_and_counted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = Opened()
    with caplog.at_level(logging.INFO, logger=LOGGER):
        opened.connection._drop_bad_frame("too large")
        opened.transport.is_closing.return_value = True
        opened.connection.drop("peer overdue", "no request")
        opened.connection.connection_lost(None)
        opened.connection.drop("peer overdue", "no request")
    (record,) = caplog.records
    assert record.message == "bad frame"
    assert record.__dict__["fields"] == {"peer": "('a', 1)", "reason": "too large"}
    assert (opened.counters.peers_dropped, opened.counters.bad_frames) == (1, 1)
    assert opened.transport.abort.call_count == 2, "what a closing connection has not sent is lost"


def test_the_number_of_connections_is_limited() -> None:
    first = Opened()
    second, third = Opened(first.context), Opened(first.context)
    assert third.transport.abort.call_count == 1
    assert list(first.context.connections) == [first.connection, second.connection]
    for opened in (third, first):
        opened.connection.connection_lost(None)
    fourth = Opened(first.context)
    assert fourth.transport.abort.call_count == 0
    counters = first.counters
    assert (counters.connections_now, counters.connections_accepted) == (2, 3)
    assert counters.connections_refused == 1


def test_the_number_of_connections_of_an_address_is_limited() -> None:
    limits = ConnectionLimits(connections_per_address_max=1)
    first = Opened(ConnectionContext(limits, ConnectionCounters(), ServerLog(_zero), _zero))
    second = Opened(first.context)
    assert second.transport.abort.call_count == 1
    second.connection.connection_lost(None)
    assert list(first.context.connections) == [first.connection]
    first.connection.connection_lost(None)
    third = Opened(first.context)
    assert (third.connection.address, third.transport.abort.call_count) == ("a", 0)
    counters = first.counters
    assert (counters.connections_now, counters.connections_accepted) == (1, 2)
    assert (counters.connections_refused, counters.connections_refused_of_address) == (0, 1)


def _zero() -> float:
    return 0.0


def test_no_connection_is_accepted_behind_the_abort_of_all() -> None:
    first = Opened()
    first.context.abort_connections()
    assert first.transport.abort.call_count == 1
    assert Opened(first.context).transport.abort.call_count == 1
    assert first.counters.connections_refused == 1
