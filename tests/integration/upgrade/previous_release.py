"""Code of the previous release, and its servers and commands as processes.

Leaves what old and new ones do together to the tests.

Invariant: no release has been published yet, so the previous one is a commit of main: the newest
state that was used before the current one.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.unpacking import unpack

ROOT: Final = Path(__file__).parents[3]
PREVIOUS: Final = "5ce9c88c1c2a70e79300b41ae07929441e07644d"
"""Commit before repair: the first release that is planned follows it."""
PACKAGES: Final = ("bookie", "broker_layer", "ledger_client", "metadata", "quire", "serving")
READY_S: Final = 60.0
COMMAND_S: Final = 120.0


def previous_tree(directory: Path) -> Path:
    """Extract the code of the previous release. Skip the test if the repository lacks it."""
    command = ["git", "-C", str(ROOT), "archive", PREVIOUS, *PACKAGES]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the repository has no commit {PREVIOUS[:8]}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        unpack(archive, directory)
    where = "import quire; print(quire.__file__)"
    imported = subprocess.run(
        [sys.executable, "-c", where],
        capture_output=True,
        env=variables(directory, ""),
        check=True,
    )
    assert imported.stdout.decode().startswith(str(directory)), "the processes would be new ones"
    return directory


def variables(tree: Path, metadata: str) -> Mapping[str, str]:
    """Return the environment in which a process imports the Quire of a tree."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    return own | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "QUIRE_METADATA": metadata}


def command(tree: Path, metadata: str, *words: str, stdin: bytes = b"") -> bytes:
    """Run a command of a release; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", *words],
        input=stdin,
        capture_output=True,
        env=variables(tree, metadata),
        cwd=tree,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@dataclass(slots=True)
class Server:
    """One bookie or broker, which may be started again with another release."""

    words: tuple[str, ...]
    metadata: str
    log: Path
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def start(self, tree: Path) -> None:
        """Start it with the code of a tree, and wait until it serves."""
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "quire.cli.main", *self.words, "--die-with-parent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=variables(tree, self.metadata),
                cwd=tree,
            )
        assert process.stdout is not None
        assert process.stdout.readline(), self.log.read_text()[-2_000:]

    def stop(self) -> None:
        """Stop it in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=READY_S)
            self._process = None
