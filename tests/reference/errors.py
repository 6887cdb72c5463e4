"""Page of every exception that a caller can meet, and of the statuses of bookies."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Final

from bookie.wire.messages import Status
from tests.reference.markdown import code, first_sentence, page, prose, table

MODULES: Final = {
    "ledger_client": ("ledger_client.errors",),
    "metadata": (
        "metadata.errors",
        "metadata.security.errors",
        "metadata.security.acl_errors",
        "metadata.security.access_errors",
        "metadata.gateway.errors",
    ),
    "bookie": ("bookie.errors", "bookie.errors", "bookie.wire.errors"),
    "security": ("quire.identity.errors",),
    "quire.server": ("quire.options", "quire.server.errors"),
    "broker_layer": (
        "broker_layer.errors",
        "broker_layer.kafka.errors",
    ),
    "spark_io": ("spark_io.errors",),
    "quire": ("quire.copyable", "quire.errors"),
}
INTRODUCTION: Final = """\
Errors of the client are under `LedgerError`. *Retriable* says that the same call on the
same handle can succeed later; an error that ended a writer is not retriable, whatever its class.
*Outcome* says what is known of the entries of a failed append: `not_written`, or
`unknown` when they may be in the ledger. What to do when something is wrong is in
[operating.md](../operating.md#when-something-is-wrong); how commands end is in
[command-line.md](command-line.md#exit-status)."""


def errors_page() -> str:
    """Return the page."""
    sections = [_package(package, modules) for package, modules in MODULES.items()]
    return page("Errors", INTRODUCTION, [*sections, _statuses()])


def _package(package: str, modules: tuple[str, ...]) -> str:
    rows = []
    for module in modules:
        for error in _errors(module):
            retriable = "yes" if getattr(error, "retriable", False) else ""
            outcome = getattr(error, "default_outcome", "")
            bases = ", ".join(code(base.__name__) for base in error.__bases__)
            text = prose(first_sentence(inspect.getdoc(error)))
            rows.append([code(error.__name__), bases, retriable, outcome, text])
    titles = ["error", "is a", "retriable", "outcome", "meaning"]
    return f"## {package}\n\n" + table(titles, rows)


def _errors(module: str) -> Iterator[type[BaseException]]:
    for value in vars(importlib.import_module(module)).values():
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if is_error and value.__module__ == module and not value.__name__.startswith("_"):
            yield value


def _statuses() -> str:
    rows = ([str(int(status)), code(status.name)] for status in Status)
    head = (
        "## Statuses of a bookie\n\nAnswers of a bookie on the wire ([formats.md](../formats.md))."
    )
    return f"{head} Only 1 and 2 are negatives.\n\n" + table(["number", "status"], rows)
