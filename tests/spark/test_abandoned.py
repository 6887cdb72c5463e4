"""Batch queries of ledgers whose writers were killed: a warning, and a recovery that is safe."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from ledger_client import LedgerState
from ledger_client.sync import LedgerClient, LedgerWriter
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.readers import LedgerBatchReader
from tests.spark.conftest import SEEN_BY_ALL, RunningCluster
from tests.spark.dying_writer import ENTRIES

GONE_S = 60.0
APPEND_EVERY_S = 0.2


def killed_writer(metadata: str) -> int:
    """Write a ledger in a process that is killed; return the ledger's id."""
    command = [sys.executable, "-m", "tests.spark.dying_writer", metadata]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=GONE_S, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return int(ended.stdout)


def wait_until_gone(client: LedgerClient, ledger_id: int) -> None:
    """Wait until the session of the ledger's writer has ended."""
    deadline_s = time.monotonic() + GONE_S
    while not client.abandoned_ledgers([ledger_id]).ledgers:
        assert time.monotonic() < deadline_s, "its node stays"
        time.sleep(0.2)


def read(spark: SparkSession, cluster: RunningCluster, **options: object) -> DataFrame:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def warnings_of_plan(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture, **options: object
) -> list[str]:
    """Plan a query in this process; return its warnings."""
    given = {name: str(value) for name, value in options.items()}
    caplog.clear()
    with caplog.at_level(logging.WARNING, "spark_io"):
        LedgerBatchReader(ReadOptions.of({"metadata": cluster.metadata, **given})).partitions()
    return caplog.messages


@pytest.fixture
def live(client: LedgerClient) -> Iterator[LedgerWriter]:
    """Append to a ledger all the time; fail if an append fails."""
    writer = client.create_ledger(SEEN_BY_ALL)
    is_over, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not is_over.wait(APPEND_EVERY_S):
                writer.append(b"alive")
        except BaseException as error:  # noqa: BLE001 - the test gets it
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield writer
    is_over.set()
    thread.join()
    assert failures == []
    writer.close()


def counted(results: dict[str, int], name: str, count: Callable[[], int]) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.update({name: count()}))
    thread.start()
    return thread


def test_a_read_warns_of_hidden_entries_and_recovers_them_on_request(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    live: LedgerWriter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dead = killed_writer(cluster.metadata)
    wait_until_gone(client, dead)
    both = f"{dead},{live.id}"
    seen = read(spark, cluster, ledger=dead).count()
    assert seen < ENTRIES
    (warning,) = warnings_of_plan(cluster, caplog, ledgers=both)
    hidden = f"ledger {dead}, entries {seen} to {ENTRIES - 1}, {ENTRIES - seen} in all"
    assert f"{hidden} (`quire ledger recover {dead}`)" in warning
    assert "recoverOpenLedgers=true" in warning
    assert f"ledger {live.id}," not in warning
    for bound in ({"endingEntry": seen}, {"endingOffsets": f'{{"{dead}": {seen}}}'}):
        assert warnings_of_plan(cluster, caplog, ledger=dead, **bound) == []
    assert client.ledger_info(dead).state is LedgerState.OPEN

    frame = read(spark, cluster, ledgers=both, recoverOpenLedgers="true")
    counts: dict[str, int] = {}

    def count_dead() -> int:
        return frame.where(f"ledger_id = {dead}").count()

    for thread in [counted(counts, name, count_dead) for name in ("one", "two")]:
        thread.join()
    assert counts == {"one": ENTRIES, "two": ENTRIES}
    assert client.ledger_info(dead).last_entry_id == ENTRIES - 1
    assert client.ledger_info(live.id).state is LedgerState.OPEN
    assert warnings_of_plan(cluster, caplog, ledgers=both) == []
