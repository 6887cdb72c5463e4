"""A program whose own modules hide a package of Quire gets an error that names the cause."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledger_client.own_packages import NEEDED

ROOT = Path(__file__).parents[3]


IMPORTED = {
    module.partition(".")[0]
    for path in (ROOT / "ledger_client").rglob("*.py")
    for module in re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
    if (ROOT / module / "__init__.py").exists()
}
"""Packages of this repository that the client imports."""


def test_each_package_that_the_client_imports_is_looked_for() -> None:
    assert IMPORTED - {"ledger_client"} - {each.partition(".")[0] for each in NEEDED} == set()


HIDDEN = ("metadata.py", "bookie/__init__.py", "quire.py")
IMPORTS = ("ledger_client", "ledger_client.sync", "quire.local_cluster", "spark_io")


@pytest.mark.parametrize(
    ("hidden", "imported"),
    [
        (hidden, imported)
        for hidden in HIDDEN
        for imported in IMPORTS
        if not imported.startswith(hidden.removesuffix("py"))  # Python itself finds the other one
    ],
)
def test_a_hidden_package_is_named(tmp_path: Path, hidden: str, imported: str) -> None:
    (tmp_path / hidden).parent.mkdir(exist_ok=True)
    (tmp_path / hidden).write_text("")
    name = hidden.partition("/")[0].removesuffix(".py")
    (tmp_path / "program.py").write_text(
        f"import sys\nsys.path.insert(1, {str(ROOT)!r})\nimport {imported}\n"
    )

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert f"Quire needs its own package '{name}'" in done.stderr.splitlines()[-1]
    assert f"rename {name}.py" in done.stderr
