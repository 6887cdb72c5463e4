"""Export of spans to a real collector, as OpenTelemetry's variables say."""

import os
import sys
from collections.abc import Iterator

import pytest

from quire.tracing import spans
from quire.tracing.exporting import TracingError, start_from
from quire.tracing.spans import SpanKind
from tests.support.tracing.collector import Collector, attributes_of, running_collector


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with running_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        yield running
    spans.send_to(None)


def test_spans_arrive_with_their_times_parents_and_errors(collector: Collector) -> None:
    stop = start_from(os.environ, "bookie")
    with spans.span("outer", SpanKind.SERVER, {}):
        parent = spans.current()
    attributes = {spans.LEDGER: 7}
    spans.record("inner", SpanKind.CLIENT, 2.0, attributes, parent=parent, error="no")
    stop()
    assert not spans.is_on()
    (outer,), (inner,) = (collector.spans["quire-bookie", name] for name in ("outer", "inner"))
    assert inner.parent_span_id == outer.span_id
    assert inner.end_time_unix_nano - inner.start_time_unix_nano == 2_000_000_000
    assert attributes_of(inner) == {spans.LEDGER: 7}
    assert (inner.status.code, inner.status.message) == (2, "no")
    assert outer.status.code == 0


def test_an_exception_is_the_error_of_its_span(collector: Collector) -> None:
    stop = start_from(os.environ, "bookie")
    with pytest.raises(ValueError, match="away"), spans.span("work", SpanKind.CLIENT, {}):
        raise ValueError("it is away")
    stop()
    (work,) = collector.spans["quire-bookie", "work"]
    assert "it is away" in work.status.message


def test_few_traces_are_kept_unless_a_sampler_is_named(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    stop = start_from(os.environ, "bookie")
    for _ in range(20_000):
        spans.record("work", SpanKind.CLIENT, 0.0, {})
    stop()
    assert 0 < len(collector.spans["orders", "work"]) < 100


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}],
)
def test_without_an_endpoint_nothing_starts(variables: dict[str, str]) -> None:
    start_from(variables, "bookie")()
    assert not spans.is_on()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(TracingError, match=r"pip install 'quire-ledger\[otel\]', or unset"):
        start_from({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "bookie")
