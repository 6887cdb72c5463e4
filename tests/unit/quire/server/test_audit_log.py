"""Lines of the audit log, and how many a peer can cause."""

import json
import logging

import pytest

from quire.server.server_log import LINES_PER_PEER_MAX, PEERS_MAX, PERIOD_S, AuditLog, JsonFormatter

Lines = list[dict[str, object]]


class Clock:
    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(clock: Clock, caplog: pytest.LogCaptureFixture) -> AuditLog:
    caplog.set_level(logging.INFO, "quire.server.audit")
    return AuditLog(clock)


def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    caplog.clear()
    return found


def test_a_line_says_who_did_what_from_where(
    audit: AuditLog, caplog: pytest.LogCaptureFixture
) -> None:
    audit.done("read-only", who="User:CN=ann", peer="10.0.0.1", read_only=True)
    audit.done("clean", who="User:CN=ann", peer="10.0.0.1", failed=True)
    audit.refused("hello", who="anonymous", peer="10.0.0.2", reason="no credentials")
    found = [{k: v for k, v in line.items() if k != "time"} for line in lines(caplog)]
    shared = {"event": "audit", "who": "User:CN=ann", "peer": "10.0.0.1"}
    assert found == [
        {**shared, "level": "info", "act": "read-only", "result": "done", "read_only": True},
        {**shared, "level": "info", "act": "clean", "result": "failed"},
        {
            "level": "warning",
            "event": "audit",
            "act": "hello",
            "result": "refused",
            "who": "anonymous",
            "peer": "10.0.0.2",
            "reason": "no credentials",
        },
    ]


def test_refusals_of_one_peer_are_bounded_and_counted(
    audit: AuditLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(LINES_PER_PEER_MAX + 7):
        audit.refused("hello", who="anonymous", peer="a")
    audit.refused("hello", who="anonymous", peer="b")
    audit.done("clean", who="ann", peer="a")
    found = lines(caplog)
    assert [each["peer"] for each in found] == ["a"] * LINES_PER_PEER_MAX + ["b", "a"]
    assert not any("left_out" in each for each in found)
    clock.now_s += PERIOD_S
    audit.refused("hello", who="anonymous", peer="a")
    audit.refused("hello", who="anonymous", peer="b")
    assert [line.get("left_out") for line in lines(caplog)] == [7, None]


def test_the_memory_of_peers_is_bounded(audit: AuditLog) -> None:
    for number in range(PEERS_MAX + 5):
        audit.refused("hello", who="anonymous", peer=str(number))
    assert len(audit._limit) == PEERS_MAX
