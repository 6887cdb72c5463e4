"""`python -m tests.planted_bugs`: plant each bug in a copy of the tree, and print which test finds
it, and after how long.

The nearest tests run first, then the unit tests of the package, then what `make test` runs. A run
stops at the first failure of a test that passes without the bug. Tests that look at the text of the
code are left out. The exit status is 1 if a bug was not found.
"""

import argparse
import io
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.planted_bugs.patches import BUGS, PlantedBug
from tests.seeded_bugs.trees import ROOT, copy_listed, copy_tree, environment

OF_THE_TEXT: Final = ("tidy", "seeded_bugs", "planted_bugs", "mutation")
"""Folders whose tests fail for any change of some lines."""
OF_TESTS: Final = ("tests", "Makefile", "pyproject.toml")
"""What decides which tests run."""
WORKERS: Final = 2
PYTHON: Final = ".venv/bin/python"
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.M)
NOTHING_TO_RUN: Final = 5
"""Status of pytest."""


def main() -> int:
    """Look for the planted bugs."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted_bugs", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=[planted_bug.name for planted_bug in BUGS]
    )
    parser.add_argument("--against", metavar="COMMIT", help="with the tests of this commit")
    given = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        plain = Path(folder) / "plain"
        _make_plain(plain, given.against)
        for bug in BUGS:
            if given.only is not None and bug.name not in given.only:
                continue
            patched = Path(folder) / bug.name
            copy_tree(plain, patched)
            bug.apply(patched)
            test, seconds = _find(bug, patched, plain)
            missed += test is None
            found = "not found" if test is None else f"found by {test}"
            sys.stdout.write(f"{bug.name}: {found}, {seconds:.0f} s\n")
            sys.stdout.flush()
    return 1 if missed else 0


def _make_plain(plain: Path, commit: str | None) -> None:
    """Copy the tree, with the tests of a commit if one is given."""
    copy_listed(ROOT, plain)
    (plain / ".venv").symlink_to(ROOT / ".venv")
    if commit is not None:
        (plain / "tests").rename(plain.with_name("other tests"))
        command = ["git", "archive", commit, *OF_TESTS]
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(plain, filter="data")
    commands = ["git init -q", "git add -A", f"{PYTHON} -m compileall -q ."]
    for words in map(str.split, commands):  # some tests ask git for the files
        subprocess.run(words, cwd=plain, check=True)


def _find(bug: PlantedBug, patched: Path, plain: Path) -> tuple[str | None, float]:
    """Return the test that finds a bug, if any, and after how many seconds."""
    began_s = time.monotonic()
    red: list[str] = []
    """Tests that fail without the bug too."""
    for command in _commands(bug):
        while True:
            status, failed = _run(command, red, patched)
            seconds = time.monotonic() - began_s
            if status in (0, NOTHING_TO_RUN):
                break
            if failed is None:
                raise SystemExit(f"{bug.name}: no test failed, and {command} failed")
            if _run([PYTHON, "-m", "pytest", "-m", "", failed], [], plain)[0] == 0:
                return failed, seconds
            sys.stderr.write(f"{failed} fails without the bug too\n")
            red.append(failed)
    return None, time.monotonic() - began_s


def _commands(bug: PlantedBug) -> Iterator[list[str]]:
    """Yield the commands that run the tests, the nearest first."""
    pytest = [PYTHON, "-m", "pytest", "-q", "-m", "not long"]
    yield [*pytest, *bug.nearest]
    folders = [f"tests/unit/{package}" for package in bug.packages]
    yield [*pytest, "-n", str(WORKERS), "--dist", "loadfile", *folders]
    yield ["make", "-o", ".venv/installed", "test", f"WORKERS={WORKERS}"]


def _run(command: list[str], left_out: list[str], tree: Path) -> tuple[int, str | None]:
    """Run a command in a tree until a test fails; return its status, and that test."""
    options = ["-x", *(f"--ignore=tests/{each}" for each in OF_THE_TEXT)]
    options += [f"--deselect={each}" for each in left_out]
    surroundings = environment(tree) | {"PYTEST_ADDOPTS": shlex.join(options)}
    surroundings.pop("MAKEFLAGS", None)
    done = subprocess.run(
        command,
        cwd=tree,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    failed = FAILED.search(done.stdout)
    return done.returncode, None if failed is None else failed[1]


if __name__ == "__main__":
    sys.exit(main())
