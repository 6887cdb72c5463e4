"""The file of a report: its parts, its limits and its mode."""

import stat
import tarfile
from pathlib import Path

import pytest

from quire.cli import cluster as bundle_module
from quire.cli.cluster import Bundle
from quire.errors import UsageError


def parts(path: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read()
    return found


def test_parts_and_notes(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with Bundle(path, 5) as bundle:
        bundle.add_json("a.json", {"b": 1})
        bundle.add("metrics/c.txt", "d\n")
        bundle.note("no answer")
    assert parts(path) == {
        "a.json": b'{\n "b": 1\n}',
        "metrics/c.txt": b"d\n",
        "notes.txt": b"no answer\n",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    with pytest.raises(UsageError, match="cannot be made"):
        Bundle(path, 5)
    assert path.read_text() == "mine"


def test_large_parts_are_cut_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "PART_BYTES_MAX", 10)
    monkeypatch.setattr(bundle_module, "BYTES_MAX", 15)
    path = tmp_path / "report.tar.gz"
    with Bundle(path, 5) as bundle:
        bundle.add("a", "x" * 20)
        bundle.add("b", "y" * 20)
    found = parts(path)
    assert (len(found["a"]), len(found["b"])) == (10, 5)
    assert b"a is cut after 10 of 20 B" in found["notes.txt"]
