"""Ports that servers of a local cluster keep."""

import socket
from pathlib import Path

import pytest

from metadata.store.embedded_ports import FIRST_PORT, HOST, LAST_PORT
from quire.local_cluster import kept_port


def test_a_port_is_kept_while_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "bookie-1" / "port"
    port = kept_port(path)
    assert kept_port(path) == port
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        other = kept_port(path)
        assert other != port
    assert kept_port(path) == other


def test_no_connection_takes_a_port_before_its_server_listens(tmp_path: Path) -> None:
    ports = [kept_port(tmp_path / str(number)) for number in range(50)]
    assert len({*ports}) == 50
    assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "99999999"])
def test_a_file_without_a_port_means_any_port(tmp_path: Path, text: str) -> None:
    path = tmp_path / "port"
    path.write_text(text)
    assert path.read_text() != f"{kept_port(path)}"
    assert int(path.read_text()) == kept_port(path)
