"""A program whose own modules hide a package of Quire gets an error that names the cause."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("hidden", ["metadata", "serving", "bookie"])
@pytest.mark.parametrize(
    "imported", ["ledger_client", "ledger_client.sync", "quire.local_cluster", "spark_io"]
)
def test_a_hidden_package_is_named(tmp_path: Path, hidden: str, imported: str) -> None:
    (tmp_path / f"{hidden}.py").write_text("")
    (tmp_path / "program.py").write_text(
        f"import sys\nsys.path.insert(1, {str(ROOT)!r})\nimport {imported}\n"
    )

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert f"Quire needs its own package '{hidden}'" in done.stderr.splitlines()[-1]
    assert f"rename {hidden}.py" in done.stderr
