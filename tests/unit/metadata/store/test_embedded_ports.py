"""Ports for servers that must know theirs before they start."""

import socket

from metadata.store.embedded_ports import FIRST_PORT, HOST, LAST_PORT, free_port, is_free


def test_no_port_is_found_twice() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)


def test_a_port_with_a_server_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_number_that_is_no_port_is_not_free() -> None:
    assert [number for number in (-1, 65_536, 99_999_999) if is_free(number)] == []
