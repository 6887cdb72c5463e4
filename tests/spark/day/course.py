"""Course of a day: lines are ingested while drivers follow them and are killed; then all is
compared, archived, restored and compared again.

Leaves the command to `__main__`, and a short day for every test run to `test_day.py`.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from ledger_client.sync import LedgerClient
from spark_io.pipelines.archive import archive
from spark_io.pipelines.ingest import ingest, lines_of
from spark_io.pipelines.restore import restore
from tests.spark.day import driver as names
from tests.spark.day.contents import (
    Contents,
    contents_of_files,
    contents_of_ledgers,
    ledgers_of_chain,
    line_differences,
    window_differences,
)
from tests.spark.day.killing import DriverFailedError, Drivers, Kill
from tests.spark.day.real_lines import numbered_files

LINKS_PER_DRIVER = 2
"""One link before a driver starts and one while it runs."""
BATCHES_PER_DRIVER = 3


@dataclass
class DayReport:
    """What happened in a day. `differences` is empty if all is as it should be."""

    lines: int = 0
    link_count: int = 0
    batches: int = 0
    windows: int = 0
    archived_ledgers: int = 0
    digest: str = ""
    kills: list[Kill] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Return the values of the JSON line."""
        return {
            "lines": self.lines,
            "links": self.link_count,
            "batches": self.batches,
            "windows": self.windows,
            "archived_ledgers": self.archived_ledgers,
            "sha256": self.digest,
            "kills": len(self.kills),
            "moments": {
                "copy": Counter(kill.copy.moment for kill in self.kills),
                "table": Counter(kill.table.moment for kill in self.kills),
            },
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "differences": self.differences,
        }


class Day:
    """One run in an empty cluster and an empty directory."""

    def __init__(self, spark: SparkSession, metadata: str, directory: Path) -> None:
        self._spark = spark
        self._metadata = metadata
        self._directory = directory
        self.report = DayReport()

    def run(self, lines: int, kills: int, seed: int, given: Path | None = None) -> DayReport:
        """Run all steps; a difference is in the report.

        Raises ValueError if there are too few lines for the kills, or they are unusable.
        """
        report = self.report
        least = (kills + 1) * BATCHES_PER_DRIVER
        if kills < 0 or lines < least:
            raise ValueError(f"{kills} kills need {least} lines or more, but {lines} were given")
        with LedgerClient(self._metadata) as client:
            with self._timed("write files"):
                texts = self._directory / "lines"
                texts.mkdir()
                links = numbered_files(texts, lines, LINKS_PER_DRIVER * (kills + 1), given)
                expected = contents_of_files(path for link in links for path in link)
            report.lines, report.link_count = len(expected.numbers), len(links)
            report.digest = expected.digest
            batch_entries = lines // least
            drivers = Drivers(client, self._metadata, self._directory, batch_entries, seed)
            report.kills = drivers.kills
            client.chain(names.LINES).create()
            try:
                self._follow(drivers, kills, links)
            except DriverFailedError as error:
                report.differences.append(str(error))
                return report
            finally:
                drivers.stop()
            report.batches = drivers.state_of_copy().recorded + 1
            with self._timed("compare"):
                self._compare(client, expected)
            self._archive_and_restore(client, expected)
        return report

    def _follow(self, drivers: Drivers, kills: int, links: Sequence[Sequence[Path]]) -> None:
        """Ingest the links while one driver after the other follows them."""
        waiting = iter(links)
        with self._timed("ingest, follow and kill"), ThreadPoolExecutor(1) as driving:
            for number in range(kills):
                starting = driving.submit(drivers.start)
                self._ingest(next(waiting, ()))
                starting.result()
                killing = driving.submit(drivers.kill)
                self._ingest(next(waiting, ()))
                kill = killing.result()
                print(f"driver {number + 1} of {kills} killed; {kill}", flush=True)
                if not kill.is_as_chosen:
                    self.report.differences.append(f"another moment was hit; {kill}")
            for link in waiting:
                self._ingest(link)
        with self._timed("finish"):
            drivers.finish()

    def _ingest(self, paths: Sequence[Path]) -> None:
        if paths:
            lines = lines_of(self._spark, [str(path) for path in paths])
            ingest(lines, self._metadata, names.LINES)

    def _compare(self, client: LedgerClient, expected: Contents) -> None:
        """Compare both chains and the table with the files."""
        report = self.report
        for chain in (names.LINES, names.COPY):
            found = contents_of_ledgers(client, ledgers_of_chain(client, chain))
            report.differences += line_differences(chain, expected, found)
        table = self._spark.read.parquet(str(self._directory / names.TABLE)).collect()
        windows = expected.windows()
        report.windows = len(windows)
        rows = [(row.start_ms, row.lines, row.bytes, row.checksums) for row in table]
        report.differences += window_differences(windows, rows)

    def _archive_and_restore(self, client: LedgerClient, expected: Contents) -> None:
        """Archive both chains, restore them into other chains, and compare with the files."""
        report = self.report
        path = str(self._directory / "archive")
        chains = {name: ledgers_of_chain(client, name) for name in (names.LINES, names.COPY)}
        with self._timed("archive"):
            ids = [ledger_id for ledger_ids in chains.values() for ledger_id in ledger_ids]
            done = archive(self._spark, self._metadata, path, ids)
            report.archived_ledgers = done.ledger_count
        for name, ledger_ids in chains.items():
            again = f"{name}-again"
            with self._timed("restore"):
                restored = restore(self._spark, self._metadata, path, again, ledger_ids=ledger_ids)
            with self._timed("compare restored"):
                if set(ledgers_of_chain(client, again)) != set(restored.values()):
                    report.differences.append(f"{again}: it has other ledgers than were restored")
                new_ids = [restored[ledger_id] for ledger_id in ledger_ids]
                found = contents_of_ledgers(client, new_ids)
                report.differences += line_differences(again, expected, found)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            seconds = self.report.seconds
            seconds[step] = seconds.get(step, 0.0) + time.monotonic() - begin
