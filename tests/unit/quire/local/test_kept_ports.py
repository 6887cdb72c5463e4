"""Ports that servers of a local cluster keep."""

import socket
from pathlib import Path

import pytest

from metadata.store.embedded_ports import HOST
from quire.local.kept_ports import choose_port, keep_port, last_port


def test_a_port_is_kept_while_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "port"
    port = choose_port(path)
    keep_port(path, port)
    assert (last_port(path), choose_port(path)) == (port, port)
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        assert last_port(path) == 0
        assert choose_port(path) not in (0, port)


@pytest.mark.parametrize("text", [None, "", "x", "-1", "99999999"])
def test_a_file_without_a_port_means_any_port(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "port"
    if text is not None:
        path.write_text(text)
    assert last_port(path) == 0
