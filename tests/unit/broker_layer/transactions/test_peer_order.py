"""Requests of a replaced connection are refused."""

from broker_layer.transactions.markers import PROCESSES_MAX, PeerOrder


def test_an_older_connection_is_refused_after_a_newer_one() -> None:
    order = PeerOrder()
    assert order.admit("broker-1#3")
    assert order.admit("broker-1#3")
    assert order.admit("broker-1#5")
    assert not order.admit("broker-1#3")
    assert not order.admit("broker-1#4")
    assert order.admit("broker-1#5")


def test_processes_are_independent() -> None:
    order = PeerOrder()
    assert order.admit("broker-1#9")
    assert order.admit("broker-2#1")
    assert order.admit("broker-1-restarted#1")


def test_a_tool_is_always_admitted() -> None:
    order = PeerOrder()
    for name in ("", "adminclient-1", "x#", "x#y", "x#-1", "x#²", "#" + "9" * 40):
        assert order.admit(name)
        assert order.admit(name)


def test_the_longest_silent_process_is_dropped_first() -> None:
    order = PeerOrder()
    assert order.admit("old#2")
    for number in range(PROCESSES_MAX):
        assert order.admit(f"{number}#2")
    assert order.admit("old#1")
    assert not order.admit(f"{PROCESSES_MAX - 1}#1")
