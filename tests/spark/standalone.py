"""Servers of Spark on loopback, as processes: a standalone cluster of a master and two workers, or
a server of Spark Connect. The kernel chooses their ports.
"""

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
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = directory / f"{name}.log"
        started.append(start_spark(log, "spark-class", *words))
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
        end(started)


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Start a server of Spark Connect with two cores; yield the address for its clients."""
    log = directory / "connect.log"
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    settings = [word for name, text in conf.items() for word in ("--conf", f"{name}={text}")]
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    words = ("--master", "local[2]", *server, *settings, "spark-internal")
    process = start_spark(log, "spark-submit", *words)
    try:
        port = wait_for(log, r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://127.0.0.1:{port}"
    finally:
        end([process])


def start_spark(log: Path, command: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command of Spark's folder bin; its output goes to the log."""
    variables = dict(os.environ)
    prepare_environment(variables)
    home = Path(pyspark.__file__).parent
    variables |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as file:
        return subprocess.Popen(
            [str(home / "bin" / command), *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
    """Terminate processes and wait until they have ended."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(30)


def wait_for(log: Path, pattern: str, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])
