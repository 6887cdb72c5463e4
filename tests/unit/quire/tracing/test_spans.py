"""Where spans go, and that nothing happens without a place for them."""

from collections.abc import Iterator

import pytest

from quire.tracing import spans
from quire.tracing.spans import SpanKind
from tests.support.tracing.kept_spans import KeptSpans, kept_spans


@pytest.fixture
def kept() -> Iterator[KeptSpans]:
    with kept_spans() as sink:
        yield sink


def test_nothing_is_recorded_without_a_sink() -> None:
    assert not spans.is_on()
    assert spans.current() is None
    spans.record("a", SpanKind.CLIENT, 1.0, {})
    with spans.span("b", SpanKind.CLIENT, {}):
        assert not spans.is_on()


def test_spans_reach_the_sink(kept: KeptSpans) -> None:
    assert spans.is_on()
    parent = spans.current()
    spans.record("a", SpanKind.CLIENT, 1.0, {"n": 1}, parent=parent, error="refused")
    with spans.span("b", SpanKind.SERVER, {"n": 2}):
        assert len(kept.ended) == 1
    assert kept.ended == [
        ("a", 1.0, {"n": 1}, "context", "refused"),
        ("b", 0.0, {"n": 2}, None, ""),
    ]
