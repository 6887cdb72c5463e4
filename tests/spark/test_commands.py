"""`quire spark ...` in other processes: output and status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger_client.sync import LedgerClient
from quire.cli.spark import describe_failure
from quire.errors import ExitCode
from tests.spark.conftest import RunningCluster

TIMEOUT_S = 180
PROGRAM = """
import sys

from quire.cli.main import main

for command in sys.argv[1:]:
    print("STATUS", main(["spark", *command.split(), "-o", "json"]))
"""


def quire_spark(
    cluster: RunningCluster, *commands: str
) -> tuple[list[tuple[object, ExitCode]], str]:
    """Run commands in one process, where each starts Spark, but only the first starts Java. Return
    their outputs and statuses, and what they wrote to standard error.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        env=os.environ | {"QUIRE_METADATA": cluster.metadata},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = []
    before = ""
    for line in done.stdout.splitlines():
        if line.startswith("STATUS "):
            status = ExitCode(int(line.removeprefix("STATUS ")))
            results.append((json.loads(before) if before else None, status))
            before = ""
        else:
            before += line
    return results, done.stderr


def test_ingest_and_scrub_commands(own_cluster: RunningCluster, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\nthree\n")
    results, errors = quire_spark(own_cluster, f"ingest {file} --chain lines", "scrub")
    counts = {"chain": "lines", "ledgers": 1, "entries": 3, "bytes": 11}
    assert results == [(counts, ExitCode.DONE), ([], ExitCode.DONE)], errors[-2000:]
    with LedgerClient(own_cluster.metadata) as client:
        [(_, link)] = client.chain("lines").links(0, 1)
        assert link is not None
        ledger_id = link.ledgers[0].ledger_id
        member = client.ledger_info(ledger_id).fragments[0].ensemble[0]
    next(bookie for bookie in own_cluster.bookies if bookie.id == member).kill()
    missing = f"ingest {tmp_path / 'none'} --chain lines"
    [(rows, found), (nothing, refused)], errors = quire_spark(own_cluster, "scrub", missing)
    assert found == ExitCode.FINDINGS, errors[-2000:]
    assert isinstance(rows, list)
    [row] = rows
    assert (row["ledger_id"], row["bookie"]) == (ledger_id, member)
    assert (row["first_entry_id"], row["last_entry_id"]) == (0, 2)
    assert row["finding"] == "unreachable"
    assert (nothing, refused) == (None, ExitCode.REFUSED)
    assert "PATH_NOT_FOUND" in errors
    assert "Traceback" not in errors


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
