"""Extras of the wheel, each in an environment of its own, from another directory."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.environments import (
    build_wheel,
    clean_environment,
    interpreters,
    make_environment,
    run,
)

RELEASE, PYTHON = list(interpreters().items())[-1]
"""The newest release on this machine: it is the first to lack a package."""
STOP_S = 60.0
LINES = b"first\nsecond\n"
USES = {
    "server": "from bookie.main import run_bookie",
    "broker": "import re2; from broker_layer.main import run_broker",
    "encryption": "import cryptography; from ledger_client import read_key_file",
    "otel": "from quire.tracing.exporting import use_application; use_application()",
    "spark-worker": "import spark_io, cramjam, kafka, pyarrow",
    "spark": "from spark_io import register; import pyspark, pyarrow, pandas",
    "spark-connect": "from spark_io import register; import pyspark.sql.connect.session",
}
"""What can be imported with an extra alone."""

pytestmark = [pytest.mark.integration, pytest.mark.packages, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Installed:
    """A local cluster that an environment with the wheel runs."""

    python: Path
    metadata: str
    console: str

    def quire(self, python: Path, *words: str, stdin: bytes = b"") -> bytes:
        """Run a command of an environment against the cluster; return its output."""
        done = subprocess.run(
            [python.with_name("quire"), *words, "--metadata", self.metadata],
            cwd=python.parent,
            env=clean_environment(),
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("client"), wheel, python=PYTHON)


@pytest.fixture(scope="module")
def cluster(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Start bookies, a broker and the console from an environment with the extra `console`."""
    directory = tmp_path_factory.mktemp("console")
    python = make_environment(directory / "venv", wheel, "console", PYTHON)
    words = ["up", "--bookies", "3", "--brokers", "1", "--console", "-o", "json"]
    with subprocess.Popen(
        [python.with_name("quire"), *words, "--data", str(directory / "data")],
        cwd=directory,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate(timeout=STOP_S)
            pytest.fail(errors.decode())
        said = json.loads(line)
        yield Installed(python, said["metadata"], said["console"]["address"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_S)


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_has_what_it_is_for(wheel: Path, tmp_path: Path, extra: str) -> None:
    python = make_environment(tmp_path / extra, wheel, extra, PYTHON)
    done = run(python, str(python), "-c", USES[extra])
    assert done.returncode == 0, done.stderr


def test_a_client_without_extras_uses_the_cluster(cluster: Installed, bare: Path) -> None:
    ledger = cluster.quire(bare, "ledger", "create").decode().split()[-1]
    cluster.quire(bare, "ledger", "append", ledger, stdin=LINES)
    assert cluster.quire(bare, "ledger", "read", ledger) == LINES


def test_topics_and_the_console_work(cluster: Installed) -> None:
    cluster.quire(cluster.python, "topic", "create", "lines")
    cluster.quire(cluster.python, "topic", "produce", "lines", stdin=LINES)
    found = cluster.quire(cluster.python, "topic", "consume", "lines", "--count", "2")
    assert found == LINES
    with urllib.request.urlopen(f"{cluster.console}topics") as answer:
        assert b"lines" in answer.read()
