"""What a server answers becomes its state."""

from quire.zookeeper.status import read_status

LEADER = """\
Zookeeper version: 3.9.5-48d6da8f4a3e9bc2ee1ea9ea8e7c9fc9aa6a8e42, built on 2025-10-14 09:04 UTC
Latency min/avg/max: 0/0.0/0
Connections: 4
Zxid: 0x100000000
Mode: leader
Node count: 61
Proposal sizes last/min/max: -1/-1/-1
"""


def test_a_server_that_leads() -> None:
    status = read_status("zk1:2181", LEADER)
    assert status.serves
    assert (status.mode, status.version) == ("leader", "3.9.5")
    assert (status.node_count, status.connections) == (61, 4)


def test_a_server_without_a_quorum_does_not_serve() -> None:
    text = "This ZooKeeper instance is not currently serving requests\n"
    status = read_status("zk1:2181", text)
    assert not status.serves
    assert status.mode == "not serving"


def test_a_server_that_does_not_answer() -> None:
    status = read_status("zk1:2181", "")
    assert not status.serves
    assert (status.mode, status.version, status.node_count) == ("no answer", "", None)
