"""Spans of this process, kept for a test."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from quire.tracing.spans import Attributes, SpanKind, send_to


class KeptSpans:
    """Sink that keeps what it gets."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float, Attributes, object, str]] = []

    def current(self) -> object:
        return "context"

    def record(
        self,
        name: str,
        kind: SpanKind,
        duration_s: float,
        attributes: Attributes,
        parent: object,
        error: str,
    ) -> None:
        self.ended.append((name, duration_s, attributes, parent, error))

    def span(
        self, name: str, kind: SpanKind, attributes: Attributes
    ) -> AbstractContextManager[None]:
        @contextmanager
        def block() -> Iterator[None]:
            yield
            self.record(name, kind, 0.0, attributes, None, "")

        return block()


@contextmanager
def kept_spans() -> Iterator[KeptSpans]:
    """Keep the spans that are recorded in the block."""
    sink = KeptSpans()
    send_to(sink)
    try:
        yield sink
    finally:
        send_to(None)
