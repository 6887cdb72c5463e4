"""A record reads back as it was written; connections of a process are found by port."""

import os
import socket
from pathlib import Path

from tests.campaign.zookeeper.faults import Outages
from tests.campaign.zookeeper.links import connected_port, parse_connections
from tests.campaign.zookeeper.record import (
    Change,
    Complaint,
    Fact,
    Read,
    RecordFile,
    Write,
    read_record,
)

TABLE = """  sl  local_address rem_address   st queues tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:D0A8 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 12 1
"""


def test_a_record_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "h0.jsonl"
    change, written = Change(1.0, "connected", 5), Write(1.0, 2.0, 0, "h0/1", "applied")
    reads = [Read(2.0, 3.0, "fresh", 1, "h0/1"), Read(3.0, 13.0, "agreed", error="no answer")]
    complaint = Complaint(4.0, "gone")
    file = RecordFile(path)
    facts: list[Fact] = [change, written, *reads, complaint]
    for fact in facts:
        file.tell(fact)
    file.close()
    record = read_record(path)
    assert record.name == "h0"
    assert (record.changes, record.writes) == ([change], [written])
    assert (record.reads, record.complaints) == (reads, [complaint])


def test_a_process_that_recorded_nothing_has_an_empty_record(tmp_path: Path) -> None:
    assert read_record(tmp_path / "h1.jsonl").reads == []


def test_established_connections_are_parsed() -> None:
    assert parse_connections(TABLE) == {12: 8080}


def test_the_port_that_this_process_is_connected_to_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert connected_port(os.getpid(), [port]) is None
        with socket.create_connection(("127.0.0.1", port)):
            assert connected_port(os.getpid(), [1, port]) == port


def test_an_outage_lasts_until_clients_are_connected_again() -> None:
    outages = Outages()
    assert not outages.any_since(0.0)
    outages.begin()
    assert outages.any_since(float("inf"))
    outages.end()
    (outage,) = outages.times
    assert outages.any_since(outage.ended)
    assert not outages.any_since(outage.ended + 60.0)
