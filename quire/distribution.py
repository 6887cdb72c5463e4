"""Name and version of this distribution, as package indexes have it.

The command and the package are `quire`. The distribution is not: `quire` is another project on
PyPI, which pip would install in its place.
"""

from typing import Final

DISTRIBUTION: Final = "quire-ledger"


def pip_install(extras: str) -> str:
    """Return the command that installs some extras."""
    return f"pip install '{DISTRIBUTION}[{extras}]'"


def build() -> str:
    """Return the installed version; `unknown` for a checkout that is not installed."""
    from importlib import metadata  # noqa: PLC0415 - slow to import, and rarely needed

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
