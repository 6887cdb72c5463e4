"""The tutorial of docs/spark.md, run line by line as a user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import RunningCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
TIMEOUT_S = 240


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_tutorial(served_cluster: RunningCluster, tmp_path: Path) -> None:
    code = "\n".join(PYTHON.findall(DOCUMENT.read_text()))
    assert code.count("assert ") >= 5
    script = tmp_path / "tutorial.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"QUIRE_METADATA": served_cluster.metadata},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "|-- data: binary" in done.stdout
    assert "|-- headers: array" in done.stdout
