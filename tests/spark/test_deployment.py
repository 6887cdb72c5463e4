"""The page docs/spark_clusters.md, word for word: workers have Spark, Python and the archive."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.environments import NO_INDEX, build_wheel
from tests.spark.conftest import RunningCluster
from tests.spark.standalone import standalone_spark

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark_clusters.md"
TIMEOUT_S = 480


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@contextmanager
def only_this_python(directory: Path) -> Iterator[None]:
    """Let processes that start now find a Python without packages first."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    before = {name: os.environ.get(name) for name in ("PATH", "PYTHONPATH", "PYSPARK_PYTHON")}
    os.environ["PATH"] = f"{directory / 'bin'}:{before['PATH']}"
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYSPARK_PYTHON"] = "python3"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@pytest.mark.skipif(sys.platform != "linux", reason="a second loopback address is needed")
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_the_page_on_two_workers_that_have_only_the_archive(
    own_cluster: RunningCluster, tmp_path: Path
) -> None:
    """The page scrubs all ledgers of the cluster: those of other tests may be damaged."""
    wheels = tmp_path / "wheels"
    build_wheel(wheels)
    (job,) = blocks("python")
    (tmp_path / "job.py").write_text(job)
    (tmp_path / "page.sh").write_text("\n".join(blocks("sh")))
    bare = tmp_path / "bare"
    with only_this_python(bare):
        found = subprocess.run(["python3", "-c", "import kazoo"], capture_output=True, check=False)
        assert found.returncode != 0, "the workers' Python has no packages"
        with standalone_spark(tmp_path) as master:
            done = run_page(tmp_path, master, own_cluster.metadata, wheels)
    if NO_INDEX in done.stderr:
        pytest.skip("no index has the packages of quire-ledger[spark-worker]")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "entries: 10000" in done.stdout
    assert "findings: []" in done.stdout
    for worker in ("w1", "w2"):
        assert list(tmp_path.glob(f"{worker}/*/*/packages/spark_io")), "it unpacked the archive"


def run_page(
    directory: Path, master: str, metadata: str, wheels: Path
) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_MASTER": master,
        "QUIRE_METADATA": metadata,
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return subprocess.run(
        ["bash", "-e", "page.sh"],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
