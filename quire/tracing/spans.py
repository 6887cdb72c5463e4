"""Spans of the work on batches: appends, commits, recoveries, copies, requests of Kafka's clients.

Leaves clocks, sampling and export to `exporting`. Without a sink nothing is recorded, and a call
costs one comparison.

Invariant: a span is per batch or rarer, never per entry.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from typing import Final, Protocol

AttributeValue = str | int | float | bool
Attributes = Mapping[str, AttributeValue]

LEDGER: Final = "quire.ledger.id"
FIRST_ENTRY: Final = "quire.entry.first"
LAST_ENTRY: Final = "quire.entry.last"
BATCH_BYTES: Final = "quire.batch.bytes"
BATCH_ENTRIES: Final = "quire.batch.entries"
BOOKIE: Final = "quire.bookie.id"


class SpanKind(Enum):
    """Side of a span: the caller, the server, or neither."""

    CLIENT = auto()
    SERVER = auto()
    INTERNAL = auto()


class Sink(Protocol):
    """Where spans go."""

    def current(self) -> object:
        """Return the context of the caller, the parent of spans that end later."""

    def record(
        self,
        name: str,
        kind: SpanKind,
        duration_s: float,
        attributes: Attributes,
        parent: object,
        error: str,
    ) -> None:
        """Record a span that ends now. An empty `error` is success."""

    def span(
        self, name: str, kind: SpanKind, attributes: Attributes
    ) -> AbstractContextManager[None]:
        """Return a block that is one span, and the parent of the spans in it."""


class _Tracing:
    """The sink of this process."""

    sink: Sink | None = None


def send_to(sink: Sink | None) -> None:
    """Record spans from now on; None turns it off."""
    _Tracing.sink = sink


def is_on() -> bool:
    """Return whether spans are recorded."""
    return _Tracing.sink is not None


def current() -> object:
    """Return the context of the caller, as `parent` of `record`; None while nothing is recorded."""
    return None if _Tracing.sink is None else _Tracing.sink.current()


def record(
    name: str,
    kind: SpanKind,
    duration_s: float,
    attributes: Attributes,
    *,
    parent: object = None,
    error: str = "",
) -> None:
    """Record a span that ends now; `parent` is a result of `current`, None for that of the caller.

    Ask `is_on` first where the attributes cost anything.
    """
    if _Tracing.sink is not None:
        _Tracing.sink.record(name, kind, duration_s, attributes, parent, error)


def span(name: str, kind: SpanKind, attributes: Attributes) -> AbstractContextManager[None]:
    """Return a block that is one span, and the parent of the spans in it. An exception in it is the
    span's error.
    """
    if _Tracing.sink is None:
        return nullcontext()
    return _Tracing.sink.span(name, kind, attributes)
