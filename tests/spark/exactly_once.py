"""Campaign that kills a streaming job repeatedly at random moments, and checks its chain.

`python -m tests.spark.exactly_once --kills 50`: a driver process, with its Java and its workers,
reads one chain and writes another, and is killed (-9) with all of its children a random time after
it recorded a batch; the next driver continues from the checkpoint. During the campaign ledgers are
published in the source. At the end each entry of the source must be in the target exactly once.
Every third driver is killed right after a publication, before Spark records it: that batch is run
again.

Leaves a short campaign for every test run to `test_exactly_once.py`.
"""

import argparse
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger_client import Quorum
from ledger_client.sync import LedgerClient
from tests.spark.day.moments import newest_batch
from tests.spark.driver_process import kill_driver, log_tail, mark_driver, start_driver

ENTRIES_PER_LINK = 500
SOURCE, TARGET = "source", "target"
RANDOM_MOST_S = 2.0
"""Longest time from a driver's first recorded batch to its death: it takes another one then."""
RECORD_TIMEOUT_S = 120
FINISH_TIMEOUT_S = 300


def drive(metadata: str, checkpoint: str, *, is_last: bool, crash_after_publish: bool) -> None:
    """Run the streaming job in this process: for ever, or until it has all present entries."""
    from spark_io.launching import session  # noqa: PLC0415 - only in the driver's process

    mark_driver()
    spark = session("exactly once", master="local[2]", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    reading = spark.readStream.format("ledger").option("metadata", metadata)
    entries = reading.option("chain", SOURCE).option("maxEntriesPerTrigger", "400").load()
    writing = entries.select("data").repartition(2).writeStream.format("ledger")
    if crash_after_publish:
        from tests.spark.crashing import CrashingLedgers  # noqa: PLC0415

        spark.dataSource.register(CrashingLedgers)
        writing = writing.format(CrashingLedgers.name())
    writing = writing.option("metadata", metadata).option("chain", TARGET)
    writing = writing.option("checkpointLocation", checkpoint)
    query = (writing.trigger(availableNow=True) if is_last else writing).start()
    query.awaitTermination()
    spark.stop()


class Campaign:
    """One source, one target, and drivers that are killed."""

    def __init__(self, metadata: str, directory: Path, seed: int) -> None:
        self._metadata = metadata
        self._checkpoint = directory / "checkpoint"
        self._log = directory / "driver.log"
        self._rng = random.Random(seed)
        self._published = 0
        self.crashes = 0

    def run(self, kills: int) -> None:
        """Kill `kills` drivers, let the last one finish, and compare. Raises AssertionError."""
        with LedgerClient(self._metadata) as client:
            client.chain(SOURCE).create(exist_ok=True)
            for number in range(kills):
                self._publish(client)
                does_crash = number % 3 == 1
                recorded = self._recorded()
                driver = self._start(does_crash=does_crash)
                try:
                    if does_crash:
                        driver.wait(RECORD_TIMEOUT_S)
                    else:
                        self._wait_random(driver, recorded)
                finally:
                    self.crashes += driver.poll() is not None
                    kill_driver(driver)
                print(f"driver {number + 1} of {kills} killed", flush=True)
            self._publish(client)
            driver = self._start(is_last=True)
            status = driver.wait(FINISH_TIMEOUT_S)
            assert status == 0, f"the last driver ended with {status}: {log_tail(self._log)}"
            self._compare(client)

    def _wait_random(self, driver: subprocess.Popen[bytes], recorded: int) -> None:
        """Wait until a driver has recorded a batch after this one, and then for a random time."""
        end = time.monotonic() + RECORD_TIMEOUT_S
        while self._recorded() == recorded:
            is_well = driver.poll() is None and time.monotonic() < end
            assert is_well, f"it recorded no batch: {log_tail(self._log)}"
            time.sleep(0.1)
        time.sleep(self._rng.uniform(0, RANDOM_MOST_S))

    def _recorded(self) -> int:
        return newest_batch(self._checkpoint / "commits")

    def _publish(self, client: LedgerClient) -> None:
        chain = client.chain(SOURCE)
        with client.create_ledger(Quorum.majority(3), metadata=chain.custom_metadata) as writer:
            first = self._published
            writer.append_many(b"%d" % n for n in range(first, first + ENTRIES_PER_LINK))
        self._published += ENTRIES_PER_LINK
        chain.publish([writer.info])

    def _start(self, *, is_last: bool = False, does_crash: bool = False) -> subprocess.Popen[bytes]:
        arguments = ["--drive", self._metadata]
        arguments += ["--checkpoint", str(self._checkpoint)]
        arguments += ["--last"] * is_last + ["--crash"] * does_crash
        return start_driver("tests.spark.exactly_once", arguments, self._log)

    def _compare(self, client: LedgerClient) -> None:
        found = Counter[int]()
        chain = client.chain(TARGET)
        info = chain.info()
        for _, link in chain.links(info.first_index, info.next_index):
            assert link is not None
            for ledger in link.ledgers:
                with client.open_ledger(ledger.ledger_id) as reader:
                    found.update(int(entry.data) for batch in reader.read() for entry in batch)
        lost = [n for n in range(self._published) if n not in found]
        twice = [n for n, count in found.items() if count > 1]
        told = f"{self._published} entries: {len(lost)} lost, {len(twice)} more than once"
        print(told, f"in {info.next_index} links; {self.crashes} drivers crashed by themselves")
        assert not lost, lost[:10]
        assert not twice, twice[:10]
        assert len(found) == self._published
        orphans = chain.collect(grace_s=0)
        print(f"{orphans} orphans collected")


def main() -> None:
    """Run a campaign, or be one of its drivers."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.exactly_once")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", metavar="ADDRESS")
    parser.add_argument("--checkpoint")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--crash", action="store_true")
    options = parser.parse_args()
    if options.drive:
        drive(
            options.drive,
            options.checkpoint,
            is_last=options.last,
            crash_after_publish=options.crash,
        )
        return
    from tests.spark.conftest import RunningCluster  # noqa: PLC0415 - a driver does not need it

    cluster = RunningCluster(4)
    try:
        with TemporaryDirectory() as directory:
            Campaign(cluster.metadata, Path(directory), options.seed).run(options.kills)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
