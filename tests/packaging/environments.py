"""Environments with the wheel and nothing of this checkout.

Leaves what is tried in them to the tests.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASES: Final = tuple(
    release
    for each in PROJECT["classifiers"]
    if (release := each.removeprefix("Programming Language :: Python :: ")).startswith("3.")
)
"""Releases of Python that Quire supports: those of the classifiers, the oldest first."""
NO_INDEX: Final = "No matching distribution"


def build_wheel(directory: Path) -> Path:
    """Build the wheel in a directory. Skips the test without the build backend."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


def interpreters() -> dict[str, str]:
    """Return the path of each supported release of Python on this machine, by its release, the
    oldest first; that of this process is always there.
    """
    found = {}
    for release in RELEASES:
        beside = Path.home() / ".pyenv" / "versions"
        managed = sorted(beside.glob(f"{release}.*/bin/python"))
        for each in (shutil.which(f"python{release}"), *map(str, managed)):
            if each and _works(each, release):
                found[release] = each
                break
    found[f"{sys.version_info.major}.{sys.version_info.minor}"] = sys.executable
    return {release: found[release] for release in RELEASES if release in found}


def _works(python: str, release: str) -> bool:
    program = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == release


def make_environment(directory: Path, wheel: Path, extras: str = "", python: str = "") -> Path:
    """Install the wheel with some extras into a new environment; return its Python. Skips the test
    if no index has the packages.
    """
    subprocess.run([python or sys.executable, "-m", "venv", str(directory)], check=True)
    made = directory / "bin" / "python"
    pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = f"quire-ledger[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
    done = subprocess.run([*pip, wanted], capture_output=True, text=True, check=False)
    if NO_INDEX in done.stderr:
        pytest.skip(f"no index has the packages of {wanted}")
    assert done.returncode == 0, done.stderr
    return made


def clean_environment() -> dict[str, str]:
    """Return the environment of processes without this checkout on their path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of an environment, in the environment's directory."""
    return subprocess.run(
        words,
        cwd=python.parent,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
