"""Check, when imported, that a program's own modules do not hide packages of Quire.

Imported before everything else of `ledger_client`, so that the error names the cause.

Source: decision 0015.
"""

from importlib.util import find_spec
from typing import Final

NEEDED: Final = (
    "bookie.wire",
    "metadata.ids",
    "quire.identity.principal",
    "quire.server.overriding",
    "quire.tracing.spans",
)
"""A module of each package that the client and its local cluster import."""


def _check() -> None:
    for needed in NEEDED:
        name = needed.partition(".")[0]
        try:
            spec = find_spec(needed)
        except ModuleNotFoundError:  # the package is a module, or there is none
            spec = None
        if spec is None:
            raise ImportError(
                f"Quire needs its own package {name!r}, and another module of that name comes first"
                f" on sys.path: rename {name}.py or the folder {name}, or start Python with the"
                " option -P"
            )


_check()
