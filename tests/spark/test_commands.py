"""`quire spark ...` as processes: output and exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli.spark import describe_failure
from quire.errors import ExitCode
from tests.spark.conftest import RunningCluster

TIMEOUT_S = 180


def quire(cluster: RunningCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "quire.cli.main", *words, "-o", "json"],
        env=os.environ | {"QUIRE_METADATA": cluster.metadata},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_ingest_and_scrub_commands(own_cluster: RunningCluster, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\nthree\n")
    told = quire(own_cluster, "spark", "ingest", str(file), "--chain", "lines")
    assert told.returncode == ExitCode.DONE, told.stderr[-2000:]
    assert json.loads(told.stdout) == {"chain": "lines", "ledgers": 1, "entries": 3, "bytes": 11}
    sound = quire(own_cluster, "spark", "scrub")
    assert (sound.returncode, json.loads(sound.stdout)) == (ExitCode.DONE, [])
    own_cluster.bookies[0].kill()
    found = quire(own_cluster, "spark", "scrub")
    rows = json.loads(found.stdout)
    assert found.returncode == (ExitCode.FINDINGS if rows else ExitCode.DONE)
    assert all(row["finding"] == "unreachable" for row in rows)
    missing = quire(own_cluster, "spark", "ingest", str(tmp_path / "none"), "--chain", "lines")
    assert missing.returncode == ExitCode.REFUSED
    assert "PATH_NOT_FOUND" in missing.stderr
    assert "Traceback" not in missing.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PATH_NOT_FOUND] no such path.\n\nJVM stacktrace:\n at x",
            "[PATH_NOT_FOUND] no such path.",
        ),
        (
            "An exception was thrown:\nTraceback (most recent call last):\n"
            "ledger_client.errors.LedgerNotFoundError: ledger 7: gone\n\nThe above exception\n"
            "spark_io.errors.DataLostError: ledger 7, entries 0 to 9: gone\n\n at org.apache",
            "ledger 7, entries 0 to 9: gone",
        ),
        ("", "the job failed, and Spark gave no reason"),
    ],
)
def test_the_innermost_reason_is_reported(text: str, said: str) -> None:
    assert describe_failure(text) == said
