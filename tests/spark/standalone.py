"""A standalone cluster of Spark on loopback: a master and two workers, as processes."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from spark_io.launching import prepare_environment


@contextmanager
def standalone_spark(directory: Path) -> Iterator[str]:
    """Start a master and two workers of one core each; yield the master's address."""
    environment = dict(os.environ)
    prepare_environment(environment)
    home = Path(pyspark.__file__).parent
    environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as file:
            started.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *words],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                )
            )
        return log

    try:
        package = "org.apache.spark.deploy"
        ports = ("--port", "0", "--webui-port", "0")
        log = start("master", f"{package}.master.Master", "--host", "127.0.0.1", *ports)
        address = wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"w{number}"))
            host = ("--host", f"127.0.0.{number}")  # Spark does not run a task twice on one host
            worker = (f"{package}.worker.Worker", *host, *ports, *work, address)
            log = start(f"worker{number}", *worker)
            wait_for(log, r"(Successfully registered with master)")
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def wait_for(log: Path, pattern: str, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])
