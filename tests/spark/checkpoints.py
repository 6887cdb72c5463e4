"""Checkpoints of streaming queries: what tests read from them, and change in them.

Leaves the queries to `streams`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.streams import finish, into_files, stream

IDS = "$ids"
LENIENT = {"failOnDataLoss": "false"}


def rows_read(frame: DataFrame, directory: Path) -> int:
    """Run a query to its end; return the number of rows that it read."""
    return sum(finish(into_files(frame, directory)))


def failure(frame: DataFrame, directory: Path) -> str:
    """Run a query that fails; return the text of its error."""
    with pytest.raises(Exception, match="Error") as caught:
        rows_read(frame, directory)
    return str(caught.value)


def newest(directory: Path, log: str) -> Path:
    """Return the newest file of one of the checkpoint's logs."""
    files = [path for path in (directory / "checkpoint" / log).iterdir() if path.name.isdecimal()]
    return max(files, key=lambda each: int(each.name))


def newest_offset(directory: Path) -> dict[str, Any]:
    """Return the end of the last micro-batch in a checkpoint."""
    *_, line = newest(directory, "offsets").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def move_end(directory: Path, **changes: object) -> None:
    """Change the end of the last micro-batch in a checkpoint, as if its driver had seen more, and
    make Spark run it again.
    """
    file = newest(directory, "offsets")
    *lines, offset = file.read_text().splitlines()
    file.write_text("\n".join([*lines, json.dumps({**json.loads(offset), **changes})]))
    file.with_name(f".{file.name}.crc").unlink()
    forget_commit(directory)


def remove_ids(directory: Path) -> None:
    """Remove the identities from the offsets of a checkpoint."""
    for file in sorted((directory / "checkpoint" / "offsets").iterdir()):
        if not file.name.isdecimal():
            file.unlink()  # a checksum
            continue
        *lines, offset = file.read_text().splitlines()
        positions = {key: each for key, each in json.loads(offset).items() if key != IDS}
        file.write_text("\n".join([*lines, json.dumps(positions)]))


def forget_commit(directory: Path) -> None:
    """Make Spark run the last micro-batch again: remove its commit, and its entry in the sink."""
    commit = newest(directory, "commits")
    for log in (commit.parent, directory / "table" / "_spark_metadata"):
        for name in (commit.name, f".{commit.name}.crc"):
            (log / name).unlink(missing_ok=True)


def ids_from_start(
    spark: SparkSession,
    cluster: RunningCluster,
    selected: dict[str, object],
    start: dict[str, object],
    directory: Path,
) -> dict[str, str]:
    """Read four rows from starting offsets without identities, be refused with other ones, and
    return those that the checkpoint has.
    """
    kind = "topic" if "topic" in selected else "ledger"
    frame = stream(spark, cluster, kind, **selected, startingOffsets=json.dumps(start))
    assert rows_read(frame, directory) == 4
    ids: dict[str, str] = newest_offset(directory)[IDS]
    other = json.dumps({**start, IDS: dict.fromkeys(ids, "00")})
    said = failure(
        stream(spark, cluster, kind, **selected, startingOffsets=other), directory / "other"
    )
    assert "$ids names another" in said
    return ids
