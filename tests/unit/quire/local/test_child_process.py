"""Children import the Quire of their parent, whatever the working directory holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire.local.child_process import child_variables

ROOT = Path(__file__).parents[4]


def test_a_child_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "metadata.py").write_text("hidden = True\n")
    code = "import metadata.ids, quire; print(metadata.__file__, quire.__file__, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=child_variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [Path(line).parents[1] for line in done.stdout.splitlines()] == [ROOT, ROOT]


def test_the_variables_of_a_server_are_left_out_and_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUIRE_METADATA", "zk://host")
    monkeypatch.setenv("OTHER", "kept")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")

    variables = child_variables()

    assert "QUIRE_METADATA" not in variables
    assert variables["OTHER"] == "kept"
    assert variables["PYTHONPATH"] == f"{ROOT}{os.pathsep}elsewhere"
