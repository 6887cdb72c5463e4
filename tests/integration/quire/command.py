"""The `quire` command as a separate process, which is forked from one that has imported Quire."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.quire.forks.forking import ForkedCommand

TIMEOUT_S = 120.0
QUIRE = [sys.executable, "-m", "quire.cli.main"]


def environment(metadata: str | None) -> dict[str, str]:
    """Return our environment with the cluster's address, and no other variables of Quire."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
    if metadata is not None:
        variables["QUIRE_METADATA"] = metadata
    return variables


def run_quire(
    *words: str, metadata: str | None = None, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run one command to its end."""
    command = ForkedCommand(words, environment(metadata))
    out, err = command.communicate(stdin, timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(command.args, command.wait(), out, err)


def run_as_user(
    *words: str, metadata: str | None = None, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run one command to its end in an interpreter of its own."""
    return subprocess.run(
        [*QUIRE, *words],
        input=stdin,
        capture_output=True,
        env=environment(metadata),
        timeout=TIMEOUT_S,
        check=False,
    )


def pause_repair(metadata: str) -> None:
    """Keep damage that a test makes as it is: otherwise a read that finds it starts its repair."""
    assert run_quire("repair", "pause", "--for", "1h", metadata=metadata).returncode == 0


def start_quire(*words: str, metadata: str | None = None) -> ForkedCommand:
    """Start a command that runs until it is stopped."""
    return ForkedCommand(words, environment(metadata))


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A `quire up` that is ready."""

    process: "ForkedCommand | subprocess.Popen[bytes]"
    told: dict[str, Any]
    run_one: Callable[..., "subprocess.CompletedProcess[bytes]"] = run_quire

    @property
    def metadata(self) -> str:
        """Address of the cluster."""
        return str(self.told["metadata"])

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run a command against this cluster."""
        return self.run_one(*words, metadata=self.metadata, stdin=stdin)

    def json(self, *words: str, stdin: bytes = b"") -> Any:
        """Run a command that must succeed; return its JSON output."""
        done = self.run(*words, "-o", "json", stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def start(self, *words: str) -> ForkedCommand:
        """Start a command that runs until it is stopped."""
        return start_quire(*words, metadata=self.metadata)

    def stop(self) -> int:
        """End the cluster as Ctrl-C does; return the status."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=TIMEOUT_S)
        return self.process.wait()


def start_cluster(
    data_dir: Path,
    bookies: int,
    brokers: int = 0,
    *more: str,
    secure: bool = False,
    as_user: bool = False,
) -> RunningCluster:
    """Start `quire up`, with more options, and wait until it reports that it is ready. `as_user`
    means interpreters of their own, for it, its servers and the commands.
    """
    words = ["up", "--bookies", str(bookies), "--data", str(data_dir), "-o", "json", *more]
    words += ["--brokers", str(brokers), *(["--secure"] if secure else [])]
    process: ForkedCommand | subprocess.Popen[bytes]
    if as_user:
        pipe = subprocess.PIPE
        command = [*QUIRE, *words]
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment(None))
    else:
        process = ForkedCommand(words, environment(None))
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, errors = process.communicate(timeout=TIMEOUT_S)
        raise AssertionError(f"quire up ended: {errors.decode()}")
    return RunningCluster(process, json.loads(line), run_as_user if as_user else run_quire)
